"""`entropy`: symbols and positions in as many bits as they are worth, by a range coder (constriction's).

Symbols are coded by how often they come, which is sent along in six bits a symbol where that pays. Gaps between
positions are expected to fall off geometrically, which needs no table at all: positions that are chosen evenly take
their entropy (F. Sattler et al., Sparse Ternary Compression, 2019, has Golomb codes for them).
Only sums, products and square roots of whole numbers go into the probabilities: both ends compute the same bits.
"""

from __future__ import annotations

import importlib
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedvitals.codecs.streams import (
    Flags,
    PlainSink,
    PlainSource,
    Positions,
    Shares,
    Sink,
    Source,
    Symbols,
    Work,
    ascending,
    count_bytes,
    least_bytes,
)
from fedvitals.errors import CodecError, MissingExtraError

MOST_SYMBOLS = 2**16  # of an alphabet that gets a table, or is coded at all
MOST_UNIFORM_BITS = 16
MOST_JUMPS = 512  # a jump is a gap without its low bits; longer ones are told apart
TABLE_BITS, ABSENT = 6, 63  # of a symbol's share: half bits of information; `ABSENT` never comes
_HALF_BIT = 0.7071067811865476
EXPECTED, TABLE = 0, 1
LEAST_TABLED = 16  # fewer symbols never pay for a table, nor for the word that there is none


@dataclass(frozen=True, slots=True)
class Entropy:
    """The packing that codes."""

    def __post_init__(self) -> None:
        _coder()

    def sink(self, agreed: bool) -> Sink:
        return EntropySink(agreed)

    def source(self, data: memoryview, sent_bytes: float) -> Source:
        return EntropySource(data, sent_bytes)


class EntropySink:
    """Counts and scales stay plain; the rest goes through the coder. For a reader that does not know what to expect it
    is made as long as the work that it asks for."""

    def __init__(self, agreed: bool) -> None:
        self.told = 0
        self._agreed = agreed
        self._side = PlainSink()
        self._coder = _coder().queue.RangeEncoder()

    def count(self, value: int) -> None:
        self._side.count(value)

    def raw(self, data: bytes, width: int = 1) -> None:
        """Numbers byte by byte of their width: exponents repeat, mantissas do not."""
        whole = np.frombuffer(data, dtype=np.uint8).reshape(-1, width)
        for place in range(width):
            self.symbols(whole[:, place], 256)

    def symbols(self, symbols: NDArray[np.integer], alphabet: int, expected: Shares | None = None) -> None:
        if alphabet <= MOST_SYMBOLS:
            self._coded(symbols, _even(alphabet) if expected is None else expected)
            return
        self._bits(symbols, (alphabet - 1).bit_length())

    def flags(self, flags: Flags, chances: Shares) -> None:
        self._encode(flags.astype(np.int32), _coder().model.Bernoulli(perfect=False), chances)

    def positions(self, positions: Positions, among: int) -> None:
        if not len(positions):
            return
        low_bits, shares = _jumps(len(positions), among)
        gaps = np.diff(positions, prepend=-1) - 1
        jumps = gaps >> low_bits
        far = jumps >= MOST_JUMPS - 1
        self._coded(np.minimum(jumps, MOST_JUMPS - 1), shares)
        self._bits(gaps & ((1 << low_bits) - 1), low_bits)
        for jump in jumps[far].tolist():
            self._side.count(jump - (MOST_JUMPS - 1))

    def finished(self) -> bytes:
        coded = (
            np.asarray(self._coder.get_compressed(), dtype="<u4").tobytes().rstrip(b"\0")
        )  # zeros are read on anyway
        if not self._agreed:
            coded = coded.ljust(least_bytes(self.told), b"\0")
        side = self._side.finished()
        return b"".join((count_bytes(len(side)), count_bytes(len(coded)), side, coded))

    def _coded(self, symbols: NDArray[np.integer], expected: Shares) -> None:
        """By a table of what is there, or by what was expected, whichever takes less."""
        if not len(symbols):
            return
        table = _Table.of(symbols, len(expected))
        many = len(symbols) >= LEAST_TABLED
        pays = many and table.bits < _cost(table.counts, expected, table.first)
        if many:
            self._side.count(TABLE if pays else EXPECTED)
        if pays:
            table.write(self._side)
        shares = table.shares(len(expected)) if pays else expected
        if np.count_nonzero(shares) > 1:
            self._encode(np.ascontiguousarray(symbols, dtype=np.int32), _model(shares))

    def _bits(self, symbols: NDArray[np.integer], bits: int) -> None:
        """Numbers that are as likely as each other."""
        for shift in range(0, bits, MOST_UNIFORM_BITS):
            size = 1 << min(bits - shift, MOST_UNIFORM_BITS)
            part = ((symbols >> shift) & (size - 1)).astype(np.int32)
            self._encode(part, _coder().model.Uniform(size))

    def _encode(self, symbols: NDArray[np.int32], model: Any, *parameters: Shares) -> None:
        self._coder.encode(symbols, model, *parameters)
        self.told += len(symbols)


class EntropySource:
    """Reads what an EntropySink wrote."""

    def __init__(self, data: memoryview, sent_bytes: float) -> None:
        whole = PlainSource(data)
        side_bytes, coded_bytes = whole.count(len(data)), whole.count(len(data))
        rest = whole.rest()
        if len(rest) != side_bytes + coded_bytes:
            raise CodecError(f"damaged update: {side_bytes + coded_bytes} bytes are claimed, {len(rest)} are there")
        self._side = PlainSource(rest[:side_bytes])
        self._work = Work(sent_bytes)
        coded = bytes(rest[side_bytes:]) + bytes(-coded_bytes % 4)
        self._coder = _coder().queue.RangeDecoder(np.frombuffer(coded, dtype="<u4").astype(np.uint32))

    def count(self, most: int) -> int:
        return self._side.count(most)

    def raw(self, size: int, width: int = 1) -> bytes:
        planes = [self.symbols(size // width, 256).astype(np.uint8) for _ in range(width)]
        return np.stack(planes, axis=1).tobytes()

    def symbols(self, count: int, alphabet: int, expected: Shares | None = None) -> Symbols:
        if alphabet <= MOST_SYMBOLS:
            shares = _even(alphabet) if expected is None else expected
            return self._decoded(count, shares).astype(np.uint32)
        found = self._bits(count, (alphabet - 1).bit_length())
        if count and int(found.max()) >= alphabet:
            raise CodecError(f"damaged update: a symbol beyond the {alphabet} that there are")
        return found.astype(np.uint32)

    def flags(self, chances: Shares) -> Flags:
        return self._with(_coder().model.Bernoulli(perfect=False), chances).astype(bool)

    def positions(self, count: int, among: int) -> Positions:
        if not count:
            return np.zeros(0, dtype=np.int64)
        low_bits, shares = _jumps(count, among)
        jumps = self._decoded(count, shares)
        low = self._bits(count, low_bits) if low_bits else 0
        for place in np.flatnonzero(jumps >= MOST_JUMPS - 1).tolist():
            jumps[place] += self._side.count(among)
        jumps <<= low_bits  # in place, as all below: there may be very many
        jumps += low
        if int(jumps.max()) >= among:  # before a sum of forged ones can run over
            raise CodecError(f"damaged update: its positions do not ascend below {among}")
        jumps += 1
        np.cumsum(jumps, out=jumps)
        jumps -= 1
        return ascending(jumps, among)

    def expect(self, flags: int) -> None:
        self._work.check(flags)

    def finish(self) -> None:
        self._side.finish()

    def _decoded(self, count: int, expected: Shares) -> NDArray[np.int64]:
        if not count:
            return np.zeros(0, dtype=np.int64)
        way = self._side.count(TABLE) if count >= LEAST_TABLED else EXPECTED
        shares = _Table.read(self._side, len(expected)).shares(len(expected)) if way == TABLE else expected
        there = np.flatnonzero(shares)
        if len(there) == 1:  # nothing to work out: a layer of nothing but zeros
            return np.full(count, there[0], dtype=np.int64)
        return self._with(_model(shares), count)

    def _bits(self, count: int, bits: int) -> NDArray[np.int64]:
        found = np.zeros(count, dtype=np.int64)
        for shift in range(0, bits, MOST_UNIFORM_BITS):
            size = 1 << min(bits - shift, MOST_UNIFORM_BITS)
            found |= self._with(_coder().model.Uniform(size), count) << shift
        return found

    def _with(self, model: Any, of: int | Shares) -> NDArray[np.int64]:
        """So many symbols of a model, or one for each of its parameters."""
        self._work.take(of if isinstance(of, int) else len(of))
        try:
            return np.asarray(self._coder.decode(model, of), dtype=np.int64)
        except AssertionError as error:  # the coder's own word for bytes that no encoder writes
            raise CodecError(f"damaged update: {error}") from None


@dataclass(frozen=True, slots=True)
class _Table:
    """How often the symbols from `first` on come, in half bits of information each."""

    first: int
    codes: NDArray[np.uint8]
    counts: NDArray[np.int64]

    @staticmethod
    def of(symbols: NDArray[np.integer], alphabet: int) -> _Table:
        counts = np.bincount(symbols, minlength=alphabet)
        there = np.flatnonzero(counts)
        first, counts = int(there[0]), counts[there[0] : there[-1] + 1]
        with np.errstate(divide="ignore"):
            codes = np.rint(2 * np.log2(len(symbols) / counts))
        codes = np.where(counts > 0, np.minimum(codes, ABSENT - 1), ABSENT)
        return _Table(first, codes.astype(np.uint8), counts)

    @property
    def bits(self) -> float:
        """What the symbols and this table take."""
        return _cost(self.counts, _of_codes(self.codes)) + TABLE_BITS * len(self.codes) + 24

    def write(self, side: Sink) -> None:
        side.count(self.first)
        side.count(len(self.codes))
        side.symbols(self.codes, 1 << TABLE_BITS)

    @staticmethod
    def read(side: Source, alphabet: int) -> _Table:
        first = side.count(alphabet - 1)
        codes = side.symbols(side.count(alphabet - first), 1 << TABLE_BITS).astype(np.uint8)
        if not (codes < ABSENT).any():
            raise CodecError("damaged update: a table of symbols that never come")
        return _Table(first, codes, np.zeros(len(codes), dtype=np.int64))

    def shares(self, alphabet: int) -> Shares:
        whole = np.zeros(alphabet)
        whole[self.first : self.first + len(self.codes)] = _of_codes(self.codes)
        return whole


def _of_codes(codes: NDArray[np.uint8]) -> Shares:
    halves = codes.astype(np.int64)
    shares = np.ldexp(1.0, -(halves // 2)) * np.where(halves % 2, _HALF_BIT, 1.0)
    found: Shares = np.where(halves == ABSENT, 0.0, shares)
    return found


def _cost(counts: NDArray[np.int64], expected: Shares, first: int = 0) -> float:
    """Bits that symbols take which come so often, by these shares."""
    shares = np.maximum(expected[first : first + len(counts)] / expected.sum(), 2.0**-24)
    return float(counts @ -np.log2(shares))


def _even(alphabet: int) -> Shares:
    return np.ones(max(alphabet, 1))


def _jumps(count: int, among: int) -> tuple[int, Shares]:
    """How gaps between `count` positions below `among` are split: low bits, which are as likely as each other, and
    jumps, which fall off geometrically."""
    low_bits = max((among // count).bit_length() - 5, 0)
    stays = 1.0 - count / (among + 1)
    for _ in range(low_bits):
        stays *= stays
    shares: Shares = np.multiply.accumulate(np.concatenate(([1.0], np.full(MOST_JUMPS - 1, stays))))
    return low_bits, shares


def _model(shares: Shares) -> Any:
    return _coder().model.Categorical(shares / math.fsum(shares), perfect=False)


def _coder() -> Any:
    try:
        return importlib.import_module("constriction").stream
    except ImportError:
        raise MissingExtraError("codecs", "the codec 'entropy'", "constriction") from None
