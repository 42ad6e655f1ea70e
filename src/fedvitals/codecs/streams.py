"""What a message is written to and read from: counts, raw bytes, symbols of an alphabet, and ascending positions.

`plain` here packs symbols into just their bits; `entropy` codes them by how often they come. A codec writes to either
in the same words. Sources read bytes from strangers: each length is compared with the bytes that are there first, and
how much there is to work out with the bytes that were sent.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from fedvitals.errors import CodecError

Symbols = NDArray[np.uint32]
Positions = NDArray[np.int64]
Flags = NDArray[np.bool_]
Shares = NDArray[np.float64]  # in any unit: how often symbols come, against each other

MOST_COUNT_BYTES = 9  # of one count: 63 bits
# What is told one by one takes time and next to no bits: a fifth of a microsecond, and 90,000 of them a byte where
# nearly all are the same. So a message pays for it by its length; a quarter of a million are free.
FREE_TOLD = 2**18
TOLD_A_BYTE = 1024
DAMAGED = "damaged update: it ends in the middle of its values"


class Sink(Protocol):
    """Takes what a message holds, in order."""

    @property
    def told(self) -> int:
        """How much of it a reader has to work out one by one."""

    def count(self, value: int) -> None:
        """A whole number, not negative."""

    def raw(self, data: bytes, width: int = 1) -> None:
        """Bytes, of numbers of so many bytes each."""

    def symbols(self, symbols: NDArray[np.integer], alphabet: int, expected: Shares | None = None) -> None:
        """Numbers from 0 up to, not including, `alphabet`. `expected` tells how often each comes, as both ends know."""

    def flags(self, flags: Flags, chances: Shares) -> None:
        """Yes or no; `chances` tells how likely each is to be yes, as both ends know."""

    def positions(self, positions: Positions, among: int) -> None:
        """Ascending numbers below `among`, none twice."""

    def finished(self) -> bytes:
        """Everything that was written."""


class Source(Protocol):
    """Gives back what a sink took, by the same calls in the same order; CodecError where that cannot be."""

    def count(self, most: int) -> int: ...

    def raw(self, size: int, width: int = 1) -> bytes: ...

    def symbols(self, count: int, alphabet: int, expected: Shares | None = None) -> Symbols: ...

    def flags(self, chances: Shares) -> Flags: ...

    def positions(self, count: int, among: int) -> Positions: ...

    def expect(self, flags: int) -> None:
        """Refuse at once what cannot hold so many flags: who asks for them bit by bit would learn it late."""

    def finish(self) -> None:
        """Refuse what is left over."""


class PlainSink:
    """Symbols in just their bits, positions in theirs or as a map of bits, whichever is smaller."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self.told = 0

    def count(self, value: int) -> None:
        self._parts.append(count_bytes(value))

    def raw(self, data: bytes, width: int = 1) -> None:
        self._parts.append(data)

    def symbols(self, symbols: NDArray[np.integer], alphabet: int, expected: Shares | None = None) -> None:
        self._parts.append(packed(symbols, bits_of(alphabet)))

    def flags(self, flags: Flags, chances: Shares) -> None:
        self._parts.append(np.packbits(flags, bitorder="little").tobytes())
        self.told += len(flags)

    def positions(self, positions: Positions, among: int) -> None:
        if _as_map(len(positions), among):
            there = np.zeros(among, dtype=np.uint8)
            there[positions] = 1
            self._parts.append(np.packbits(there, bitorder="little").tobytes())
        else:
            self.symbols(positions, among)

    def finished(self) -> bytes:
        return b"".join(self._parts)


class PlainSource:
    """Reads what a PlainSink wrote. Without a number of bytes that were sent, any amount of work is taken on."""

    def __init__(self, data: bytes | memoryview, sent_bytes: float = math.inf) -> None:
        self._data = memoryview(data)
        self._at = 0
        self._work = Work(sent_bytes)

    def count(self, most: int) -> int:
        value = shift = 0
        while True:
            byte = self._taken(1)[0]
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                break
            if shift >= 7 * MOST_COUNT_BYTES:
                raise CodecError("damaged update: a count of more than 63 bits")
        if value > most:
            raise CodecError(f"damaged update: a count of {value} is claimed; at most {most} can be")
        return value

    def raw(self, size: int, width: int = 1) -> bytes:
        return bytes(self._taken(size))

    def symbols(self, count: int, alphabet: int, expected: Shares | None = None) -> Symbols:
        bits = bits_of(alphabet)
        found = unpacked(self._taken(-(-count * bits // 8)), count, bits)
        if alphabet != 1 << bits and count and int(found.max()) >= alphabet:
            raise CodecError(f"damaged update: a symbol beyond the {alphabet} that there are")
        return found

    def flags(self, chances: Shares) -> Flags:
        self._work.take(len(chances))
        raw = np.frombuffer(self._taken(-(-len(chances) // 8)), dtype=np.uint8)
        return np.unpackbits(raw, count=len(chances), bitorder="little").astype(bool)

    def positions(self, count: int, among: int) -> Positions:
        if not _as_map(count, among):
            return ascending(self.symbols(count, among).astype(np.int64), among)
        there = np.frombuffer(self._taken(-(-among // 8)), dtype=np.uint8)
        found = np.flatnonzero(np.unpackbits(there, count=among, bitorder="little"))
        if len(found) != count:
            raise CodecError(f"damaged update: {count} positions are claimed, {len(found)} are there")
        return found.astype(np.int64)

    def expect(self, flags: int) -> None:
        self._work.check(flags)
        if flags > 8 * (len(self._data) - self._at):
            raise CodecError(DAMAGED)

    def finish(self) -> None:
        if self._at != len(self._data):
            raise CodecError(f"damaged update: {len(self._data) - self._at} bytes are left after its values")

    def rest(self) -> memoryview:
        """What has not been read."""
        return self._data[self._at :]

    def _taken(self, size: int) -> memoryview:
        if size > len(self._data) - self._at:
            raise CodecError(DAMAGED)
        self._at += size
        return self._data[self._at - size : self._at]


class Work:
    """What may still be asked of a reader, by the bytes that it was sent."""

    def __init__(self, sent_bytes: float) -> None:
        self._sent_bytes = sent_bytes
        self._told = 0

    def check(self, more: int) -> None:
        """Refuse what would be too much."""
        if least_bytes(self._told + more) > self._sent_bytes:
            raise CodecError(
                f"damaged update: {self._told + more} values or more are claimed in {self._sent_bytes} bytes; so many "
                f"take {least_bytes(self._told + more)}, or ends that have agreed on the layers"
            )

    def take(self, more: int) -> None:
        self.check(more)
        self._told += more


def least_bytes(told: int) -> int:
    """Of a message, for a reader that does not know what to expect, with so much that is told one by one."""
    return max(-(-(told - FREE_TOLD) // TOLD_A_BYTE), 0)


def count_bytes(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the eighth says that there are more (LEB128)."""
    found = bytearray()
    while value >= 0x80:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def ascending(positions: Positions, among: int) -> Positions:
    """Positions that can be: a forged one would write to another's place, or to nobody's."""
    if len(positions) and (positions[0] < 0 or positions[-1] >= among or bool((np.diff(positions) <= 0).any())):
        raise CodecError(f"damaged update: its positions do not ascend below {among}")
    return positions


def bits_of(alphabet: int) -> int:
    return max(alphabet - 1, 0).bit_length()


def packed(symbols: NDArray[np.integer], bits: int) -> bytes:
    """The low bits of each, one after the other."""
    if bits == 0 or not len(symbols):
        return b""
    if bits == 8:
        return symbols.astype(np.uint8).tobytes()
    if bits < 8:
        return _eights_packed(symbols, bits)[: -(-len(symbols) * bits // 8)]
    wide = np.ascontiguousarray(symbols, dtype="<u4").view(np.uint8).reshape(len(symbols), 4)
    low_bits = np.unpackbits(wide, axis=1, bitorder="little")[:, :bits]
    return np.packbits(low_bits, bitorder="little").tobytes()


def unpacked(data: bytes | memoryview, count: int, bits: int) -> Symbols:
    """The symbols that `packed` was given."""
    if bits == 0 or not count:
        return np.zeros(count, dtype=np.uint32)
    raw = np.frombuffer(data, dtype=np.uint8)
    if bits == 8:
        return raw.astype(np.uint32)
    if bits < 8:
        return _eights_unpacked(raw, bits)[:count]
    low_bits = np.unpackbits(raw, count=count * bits, bitorder="little").reshape(count, bits)
    wide = np.zeros((count, 4), dtype=np.uint8)
    wide[:, : -(-bits // 8)] = np.packbits(low_bits, axis=1, bitorder="little")
    return wide.view("<u4").reshape(-1).astype(np.uint32, copy=False)


def _eights_packed(symbols: NDArray[np.integer], bits: int) -> bytes:
    """Eight symbols fill whole bytes and fit into one word: several times quicker than bit by bit."""
    eights = np.zeros((-(-len(symbols) // 8), 8), dtype=np.uint8)
    eights.reshape(-1)[: len(symbols)] = symbols
    words = np.zeros(len(eights), dtype="<u8")
    for place in range(8):
        words |= eights[:, place].astype("<u8") << np.uint64(place * bits)
    return words.view(np.uint8).reshape(-1, 8)[:, :bits].tobytes()


def _eights_unpacked(raw: NDArray[np.uint8], bits: int) -> Symbols:
    words = np.zeros((-(-len(raw) // bits), 8), dtype=np.uint8)
    filled = np.zeros(len(words) * bits, dtype=np.uint8)
    filled[: len(raw)] = raw
    words[:, :bits] = filled.reshape(-1, bits)
    whole, mask = words.view("<u8").reshape(-1), np.uint64((1 << bits) - 1)
    found = np.empty((len(words), 8), dtype=np.uint32)
    for place in range(8):
        found[:, place] = (whole >> np.uint64(place * bits)) & mask
    return found.reshape(-1)


def _as_map(count: int, among: int) -> bool:
    """Whether a bit for each place takes less than a number for each position."""
    return among < count * bits_of(among)
