"""A file that only grows: what arrays and small blobs are written into, one behind the other."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

_MOST_BUFFERS = 512  # of one call; the system allows 1,024


class GrowingFile:
    """The writing end. Nothing is made before the first bytes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = -1
        self.end = 0  # where the next bytes go; set it back to forget what was written behind

    def write(self, buffers: Sequence[memoryview]) -> None:
        """All of them, or OSError; then `end` may be anywhere between."""
        for start in range(0, len(buffers), _MOST_BUFFERS):
            self._write(list(buffers[start : start + _MOST_BUFFERS]))

    def _write(self, buffers: list[memoryview]) -> None:
        self._open()
        while buffers:
            written = os.pwritev(self._file, buffers, self.end)
            self.end += written
            while buffers and written >= len(buffers[0]):
                written -= len(buffers.pop(0))
            if buffers and written:
                buffers[0] = buffers[0][written:]

    def _open(self) -> None:
        if self._file < 0:
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def close(self) -> None:
        """Cut off what was written for nothing, and see that the rest reaches the disk."""
        if self._file >= 0:
            with suppress(OSError):
                os.ftruncate(self._file, self.end)
                os.fdatasync(self._file)
            os.close(self._file)
            self._file = -1
