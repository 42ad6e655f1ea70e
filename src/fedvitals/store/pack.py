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

from fedvitals.store.growing import GrowingFile

NAME = "small.pack"
LARGEST = 256 << 10  # bytes of a blob that goes here
_HEAD = struct.Struct("<32sQ")


class Pack:
    """Both ends. One journal writes; readers see what it has added when they look again."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / NAME
        self._places: dict[bytes, tuple[int, int]] = {}  # digest -> where its bytes begin, how many
        self._file = GrowingFile(self._path)  # its end is that of what is known

    def add(self, digest: bytes, data: bytes) -> int:
        """Keep these bytes once; gives how many that added. Raises OSError."""
        if not self._places:
            with suppress(FileExistsError):
                os.mkdir(self._path.parent)  # not its parents: a run that was deleted is not made again
            self._look()
        if digest in self._places:
            return 0
        place = self._file.end
        try:
            self._file.write([memoryview(_HEAD.pack(digest, len(data))), memoryview(data)])
        except OSError:
            self._file.end = place
            raise
        self._places[digest] = (place + _HEAD.size, len(data))
        return self._file.end - place

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
        """Of who wrote."""
        self._file.close()

    def _look(self) -> None:
        """Take in what was added since the last time."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            whole = os.fstat(file.fileno()).st_size
            while self._next(file, whole):
                pass

    def _next(self, file: BinaryIO, whole: int) -> bool:
        """The next blob; False at the end, and where no blob can be."""
        file.seek(self._file.end)
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            return False
        digest, size = _HEAD.unpack(head)
        begin = self._file.end + _HEAD.size
        if size > LARGEST or begin + size > whole:
            return False
        self._places[digest] = (begin, size)
        self._file.end = begin + size
        return True
