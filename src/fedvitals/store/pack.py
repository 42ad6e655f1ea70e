"""Small blobs one behind the other in one file: making a file of each costs ten times what writing it does.

Of each blob there are its SHA-256, its length and its bytes. The file only grows. An end that is not there whole,
because its writer was killed or is about to go on, is no blob yet.
"""

from __future__ import annotations

import os
import struct
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

NAME = "small.pack"
LARGEST = 64 << 10  # bytes of a blob that goes here
_HEAD = struct.Struct("<32sQ")


class Pack:
    """Both ends. One journal writes; readers see what it has added when they look again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._places: dict[bytes, tuple[int, int]] = {}  # digest -> where its bytes begin, how many
        self._end = 0  # of what is known
        self._file = -1

    def add(self, digest: bytes, data: bytes) -> int:
        """Keep these bytes once; gives how many that added. Raises OSError."""
        if digest in self._places:
            return 0
        if self._file < 0:
            os.makedirs(self._path.parent, exist_ok=True)
            self._file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._look()
        record = memoryview(_HEAD.pack(digest, len(data)) + data)
        place = self._end
        while record:
            written = os.pwrite(self._file, record, place)
            record, place = record[written:], place + written
        self._places[digest] = (self._end + _HEAD.size, len(data))
        added, self._end = place - self._end, place
        return added

    def get(self, digest: bytes) -> bytes | None:
        """None where it is not here."""
        if digest not in self._places:
            self._look()
        if digest not in self._places:
            return None
        place, size = self._places[digest]
        with self._path.open("rb") as file:
            file.seek(place)
            return file.read(size)

    def size_bytes(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0

    def close(self) -> None:
        """Cut off what was not written whole, and see that the rest reaches the disk."""
        if self._file >= 0:
            with suppress(OSError):
                os.ftruncate(self._file, self._end)
                os.fdatasync(self._file)
            os.close(self._file)
            self._file = -1

    def _look(self) -> None:
        """Take in what was added since the last time."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            whole = os.fstat(file.fileno()).st_size
            while self._next(file, whole):
                pass

    def _next(self, file: BinaryIO, whole: int) -> bool:
        """The next blob; False at the end, and where no blob can be."""
        file.seek(self._end)
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return False
        digest, size = _HEAD.unpack(head)
        begin = self._end + _HEAD.size
        if size > LARGEST or begin + size > whole:
            return False
        self._places[digest] = (begin, size)
        self._end = begin + size
        return True
