"""The arrays of a run in a file of their own, `arrays.bin`, one behind the other; rows of the database say where.

Inside the database the same bytes would be written twice, to its log and to its file, summed up and copied about: 260
us of the writer's time for a block of 64 updates, against 30 here. They are written before the row that speaks of them
is committed, so a reader never looks where there is nothing.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedvitals.errors import StoreError
from fedvitals.store.direct import LARGE, DirectFile, in_pages
from fedvitals.store.growing import GrowingFile

if TYPE_CHECKING:
    from numpy.typing import NDArray

ARRAYS = "arrays.bin"


class ArrayWriter(GrowingFile):
    """The writing end."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / ARRAYS)
        self._direct = DirectFile(folder / ARRAYS)

    def write_arrays(self, arrays: Sequence[NDArray[Any]]) -> int:
        """Contiguous, little-endian arrays, one behind the other; gives the place of the first. Raises OSError."""
        buffers = [_bytes_of(array) for array in arrays if array.nbytes]
        size = sum(map(len, buffers))
        place = in_pages(self.end)
        if size >= LARGE and self._direct.write(buffers, place):
            self.end = place + in_pages(size)
            return place
        place = self.end
        self.write(buffers)
        return place

    def close(self) -> None:
        if self._direct.used:
            with suppress(OSError):
                self._open()  # what was written past the cache is cut and brought to the disk like the rest
        self._direct.close()
        super().close()


def _bytes_of(array: NDArray[Any]) -> memoryview:
    return array.data.cast("B") if sys.byteorder == "little" else array.reshape(-1).view("u1").data


class ArrayReader:
    """The reading end, for one reader of the run."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ARRAYS
        self._file = -1

    def read(self, place: int, size: int) -> bytes:
        """So many bytes from there; never more than the file has, whatever a row says."""
        if size == 0:
            return b""
        if self._file < 0:
            self._file = self._opened()
        if place < 0 or size < 0 or place + size > os.fstat(self._file).st_size:
            raise StoreError(f"{self._path} ends too early: copy the whole folder of the run, or restore it")
        data = os.pread(self._file, size, place)
        if len(data) != size:
            raise StoreError(f"{self._path} could not be read in full: copy the whole folder of the run, or restore it")
        return data

    def _opened(self) -> int:
        try:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise StoreError(
                f"{self._path} cannot be read ({error.strerror or error}): copy the whole folder of the run"
            ) from error

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def size_of(folder: Path) -> int:
    with suppress(OSError):
        return os.stat(folder / ARRAYS).st_size
    return 0
