"""Large writes straight to the disk, past the system's cache of files.

A page that is new to the cache has to be found first, and a virtual machine often has to ask its host for it: there,
writing 125 KB cost 100 to 300 us, and costs a tenth of that this way. It needs whole pages, so it is for what comes in
large pieces, and a file system that has it: everywhere else it says no, and the usual way is taken.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Iterable
from pathlib import Path

PAGE = 4096  # bytes: places and sizes are multiples of it
LARGE = 64 << 10  # bytes of a write that is worth it: what fills up its last page is little beside it
SLOWEST_S = 0.1  # of a disk that is waited for: what waits for its turn meanwhile would be lost with the process
_STAGE = 1 << 20


class DirectFile:
    """The writing end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self._stage: memoryview | None = None  # where pieces are put together, at the beginning of a page
        self._usable = hasattr(os, "O_DIRECT")
        self.used = False  # whether anything was ever written

    def write(self, buffers: Iterable[memoryview], place: int) -> bool:
        """Whether all of them are in the file now, one behind the other from this place on, the last page filled up. If
        not, some may be: whoever writes them there in another way also finds out what is wrong."""
        if not self._usable:
            return False
        began = time.monotonic()
        try:
            self._write(buffers, place)
        except OSError:
            self.close()
            self._usable = False
            return False
        if time.monotonic() - began >= SLOWEST_S:
            self.close()
            self._usable = False
        return True

    def _write(self, buffers: Iterable[memoryview], place: int) -> None:
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_DIRECT, 0o644)
        self.used = True
        if self._stage is None:
            self._stage = memoryview(mmap.mmap(-1, _STAGE))
        stage, filled = self._stage, 0
        for buffer in buffers:
            taken = 0
            while taken < len(buffer):
                some = min(len(buffer) - taken, _STAGE - filled)
                stage[filled : filled + some] = buffer[taken : taken + some]
                filled, taken = filled + some, taken + some
                if filled == _STAGE:
                    self._put(filled, place)
                    place, filled = place + filled, 0
        if filled:
            whole = in_pages(filled)
            stage[filled:whole] = bytes(whole - filled)
            self._put(whole, place)

    def _put(self, size: int, place: int) -> None:
        assert self._stage is not None
        if os.pwrite(self._file, self._stage[:size], place) != size:
            raise OSError(f"{self._path} took a part of what was written to it")

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        self._stage = None


def in_pages(size: int) -> int:
    """The next multiple of a page."""
    return -(-size // PAGE) * PAGE
