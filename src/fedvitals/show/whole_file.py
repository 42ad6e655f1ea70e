"""A file that a command was asked to write: the whole of it or nothing, and one clear line when it cannot be."""

from __future__ import annotations

import gzip
import io
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from fedvitals.errors import FedvitalsError


@contextmanager
def whole_file(path: Path, option: str) -> Iterator[TextIO]:
    """Text, UTF-8, gzipped where the name ends in .gz. What was there before stays until all is written.

    `option` is how the user named it, for the error. A device or a pipe is written to directly.
    """
    if str(path) == "-":
        raise FedvitalsError(f"{option} -: right is the name of a file; /dev/stdout is standard output")
    target = Path(os.path.realpath(path))
    direct = target.exists() and not target.is_file()
    beside = target if direct else target.with_name(f".{target.name}.{os.getpid()}")
    try:
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder; right is the name of a file")
        with _opened(beside, packed=path.suffix == ".gz") as stream:
            yield stream
        if not direct:
            os.replace(beside, target)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise FedvitalsError(f"{option} {path}: {error.strerror or error}") from error
    finally:
        if not direct:
            beside.unlink(missing_ok=True)


@contextmanager
def _opened(path: Path, *, packed: bool) -> Iterator[TextIO]:
    with path.open("wb") as file:
        if not packed:
            with io.TextIOWrapper(file, encoding="utf-8", errors="backslashreplace", newline="\n") as stream:
                yield stream
            return
        with (
            gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=6, mtime=0) as packing,
            io.TextIOWrapper(packing, encoding="utf-8", errors="backslashreplace", newline="\n") as stream,
        ):
            yield stream
