"""Values beside the database, known by the SHA-256 of their content: small ones in one file, big ones in files that
bear it as their name, written whole or not at all."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from fedvitals.errors import StoreError
from fedvitals.store.pack import LARGEST, Pack

_NAME = re.compile(r"[0-9a-f]{64}")


class BlobFolder:
    """`blobs/small.pack`, and `blobs/ab/cdef...`: two levels, so that no folder grows beyond what tools can list."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._pack = Pack(folder)
        self._shelves: set[str] = set()  # that are known to be there

    def path_of(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise StoreError(f"{name[:80]!r} cannot be the name of a blob: it is a SHA-256 in 64 hexadecimal digits")
        return self.folder / name[:2] / name[2:]

    def put(self, data: bytes) -> tuple[str, int]:
        """Keep these bytes once; gives their name and how many bytes that added. Raises OSError."""
        digest = hashlib.sha256(data)
        name = digest.hexdigest()
        if len(data) <= LARGEST:
            return name, self._pack.add(digest.digest(), data)
        shelf = f"{self.folder}/{name[:2]}"  # a string: Path costs more than the disk
        path = f"{shelf}/{name[2:]}"
        if os.path.exists(path):
            return name, 0
        partial = f"{path}.{os.getpid()}.partial"
        try:
            if shelf not in self._shelves:
                os.makedirs(shelf, exist_ok=True)
                self._shelves.add(shelf)
            _write(partial, data)
            os.replace(partial, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(partial)
            raise
        return name, len(data)

    def get(self, name: str) -> bytes:
        path = self.path_of(name)
        try:
            packed = self._pack.get(bytes.fromhex(name))
            data = path.read_bytes() if packed is None else packed
        except FileNotFoundError as error:
            raise StoreError(f"the blob {path} is missing: copy the whole folder of the run") from error
        except OSError as error:
            raise StoreError(f"the blob {path} cannot be read: {error.strerror or error}") from error
        if hashlib.sha256(data).hexdigest() != name:
            raise StoreError(f"the blob {path} is damaged (its content does not give its name): restore it from a copy")
        return data

    def files(self) -> Iterator[tuple[str, Path]]:
        """Name and path of each big blob that is there whole."""
        if self.folder.is_dir():
            for path in sorted(self.folder.glob("??/*")):
                name = path.parent.name + path.name
                if _NAME.fullmatch(name):
                    yield name, path

    def size_bytes(self) -> int:
        return self._pack.size_bytes() + sum(path.stat().st_size for _, path in self.files())

    def close(self) -> None:
        """Of who wrote."""
        self._pack.close()


def _write(path: str, data: bytes) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(file, left) :]
    finally:
        os.close(file)
