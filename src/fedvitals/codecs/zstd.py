"""`zstd` and `zstd:LEVEL`: the finished bytes once more through Zstandard."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from fedvitals.errors import CodecError, MissingExtraError

MOST_LEVEL = 19
USUAL_LEVEL = 3


@dataclass(frozen=True, slots=True)
class Zstd:
    """The squeezing that finds repetitions."""

    level: int = USUAL_LEVEL

    def __post_init__(self) -> None:
        if not 1 <= self.level <= MOST_LEVEL:
            raise CodecError(f"zstd:{self.level}: right is a level from 1 to {MOST_LEVEL}")
        _zstandard()

    def squeezed(self, data: bytes) -> bytes:
        found: bytes = _zstandard().ZstdCompressor(level=self.level, write_checksum=False).compress(data)
        return found

    def restored(self, data: bytes, most: int) -> bytes:
        zstandard = _zstandard()
        try:
            claimed = zstandard.frame_content_size(data)
            if not 0 <= claimed <= most:
                raise CodecError(f"damaged update: {claimed} bytes are claimed in {len(data)} squeezed ones")
            inflater = zstandard.ZstdDecompressor().decompressobj()
            found: bytes = inflater.decompress(data)
        except zstandard.ZstdError as error:
            raise CodecError(f"damaged update: it cannot be unsqueezed ({error})") from None
        if not inflater.eof or inflater.unused_data or len(found) != claimed:
            raise CodecError("damaged update: it is cut off in the middle of its squeezed bytes, or goes on after them")
        return found


def parsed(argument: str | None) -> Zstd:
    """From the text after `zstd:`."""
    if argument is None:
        return Zstd()
    if not (argument.isascii() and argument.isdigit() and len(argument) <= 2):
        raise CodecError(f"codec 'zstd' takes a level from 1 to {MOST_LEVEL}, as in 'zstd:3'; found {argument!r}")
    return Zstd(int(argument))


def _zstandard() -> Any:
    try:
        return importlib.import_module("zstandard")
    except ImportError:
        raise MissingExtraError("codecs", "the codec 'zstd'", "zstandard") from None
