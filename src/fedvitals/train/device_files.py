"""The engine's network, at its door: devices from a CSV file, such as one measured at one's own clients.

The first line names the columns, in any order; what is left out is as the nominal device has it. With the column
`client` a row belongs to the client of that name, and every client needs one. Without it the rows are a deck of
devices, shuffled by the job's seed and dealt out one to a client; a deck that runs out is shuffled and dealt again.
"""

from __future__ import annotations

import csv
import hashlib
import io
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from fedvitals.errors import JobError, nearest
from fedvitals.randomness import stream
from fedvitals.train.device import NOMINAL, Device

MAX_FILE_BYTES = 20_000_000
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class Column:
    """What a column holds: a field of Device in a unit that people write, and its limits in that unit."""

    field: str
    unit: float
    low: float
    high: float
    above: bool = False  # `low` itself is not allowed

    def right(self) -> str:
        return f"a number {'above' if self.above else 'of at least'} {self.low:g} and at most {self.high:g}"

    def holds(self, number: float) -> bool:
        return (number > self.low if self.above else number >= self.low) and number <= self.high  # NaN is neither


COLUMNS: Mapping[str, Column] = {
    "down_mbps": Column("down_bits_per_s", 1e6, 0.0, 1e7, above=True),
    "up_mbps": Column("up_bits_per_s", 1e6, 0.0, 1e7, above=True),
    "latency_ms": Column("latency_s", 1e-3, 0.0, 1e7),
    "loss": Column("loss", 1.0, 0.0, 0.99),
    "gflop_per_s": Column("flop_per_s", 1e9, 0.0, 1e9, above=True),
    "step_ms": Column("step_s", 1e-3, 0.0, 1e7),
    "available": Column("available", 1.0, 0.0, 1.0, above=True),
    "dropout": Column("dropout", 1.0, 0.0, 0.99),
    "jitter": Column("jitter", 1.0, 0.0, 2.0),
}
NAME = "client"


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """What was in a file."""

    devices: tuple[Device, ...]
    names: tuple[str, ...]  # of the clients they belong to; empty where the file has none
    sha256: str


def read(path: str | Path) -> DeviceFile:
    """The devices of a file, or a JobError with the file, the line, the column and what would be right."""
    data = _bytes(Path(path))
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise JobError(f"{path} is not UTF-8 text: byte {error.start}") from error
    rows = _rows(str(path), text)
    _, header = next(rows, (1, []))
    columns = _header(str(path), header)
    devices: list[Device] = []
    names: dict[str, int] = {}
    for line, cells in rows:
        where = f"{path}, line {line}"
        if len(cells) != len(columns):
            raise JobError(f"{where} has {len(cells)} cells; the first line names {len(columns)} columns")
        devices.append(_device(where, columns, cells))
        if NAME in columns:
            _take_name(where, cells[columns.index(NAME)].strip(), line, names)
    if not devices:
        raise JobError(f"{path} has no device: there is no line below the names of the columns")
    return DeviceFile(tuple(devices), tuple(names), hashlib.sha256(data).hexdigest())


def dealt(path: str, file: DeviceFile, clients: Sequence[str], seed: int) -> tuple[Device, ...]:
    """A device for each client: the one under its name, or one from the shuffled deck."""
    if file.names:
        own = dict(zip(file.names, file.devices, strict=True))
        missing = [client for client in clients if client not in own]
        if missing:
            some = ", ".join(map(repr, missing[:MOST_NAMED])) + (" ..." if len(missing) > MOST_NAMED else "")
            raise JobError(
                f"{path}, column {NAME}: {len(missing)} of {len(clients)} clients have no row: {some}; right is a row "
                f"for each, or no column {NAME!r} to deal the rows out"
            )
        return tuple(own[client] for client in clients)
    return tuple(file.devices[card] for card in _deck(len(file.devices), len(clients), seed))


def described(device: Device) -> dict[str, float]:
    """A device in the columns and units of such a file, to four digits: a run keeps a thousand of them."""
    return {name: float(f"{getattr(device, one.field) / one.unit:.4g}") for name, one in COLUMNS.items()}


def _deck(cards: int, wanted: int, seed: int) -> list[int]:
    deals = range(-(-wanted // cards))
    return [int(card) for deal in deals for card in stream(seed, "device deck", deal).permutation(cards)][:wanted]


def _bytes(path: Path) -> bytes:
    try:
        if not path.is_file():
            found = "is not a file" if path.exists() else "there is no such file"
            raise JobError(f"network.profile: {path}: {found}; it is looked for from the working folder")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise JobError(f"network.profile: {path} cannot be read: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise JobError(f"network.profile: {path} is larger than {MAX_FILE_BYTES:,} bytes: that is no list of devices")
    return data


def _rows(path: str, text: str) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and cells; empty lines are nobody's device."""
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        for cells in reader:
            if any(cell.strip() for cell in cells):
                yield reader.line_num, cells
    except csv.Error as error:
        raise JobError(f"{path}, line {reader.line_num} is not CSV: {error}") from error


def _header(path: str, cells: Sequence[str]) -> list[str]:
    columns = [cell.strip().lower() for cell in cells]
    known = [NAME, *COLUMNS]
    for number, name in enumerate(columns):
        if name not in known:
            raise JobError(f"{path}, line 1: there is no column {name[:80]!r}{nearest(name[:80], known)}")
        if name in columns[:number]:
            raise JobError(f"{path}, line 1, column {name}: it is there twice; once is right")
    if not set(columns) & set(COLUMNS):
        raise JobError(f"{path}, line 1 should name the columns, at least one of {', '.join(COLUMNS)}")
    return columns


def _device(where: str, columns: Sequence[str], cells: Sequence[str]) -> Device:
    values: dict[str, float] = {}
    for name, cell in zip(columns, cells, strict=True):
        if name != NAME:
            column = COLUMNS[name]
            values[column.field] = _number(f"{where}, column {name}", cell.strip(), column) * column.unit
    return replace(NOMINAL, **values)


def _number(where: str, cell: str, column: Column) -> float:
    try:
        number = float(cell)
    except ValueError:
        number = math.nan
    if not column.holds(number):
        raise JobError(f"{where}: {cell[:40]!r} should be {column.right()}")
    return number


def _take_name(where: str, name: str, line: int, names: dict[str, int]) -> None:
    if not name:
        raise JobError(f"{where}, column {NAME}: it is empty; right is the name of a client")
    if name in names:
        raise JobError(
            f"{where}, column {NAME}: {name[:80]!r} has line {names[name]} already; one row a client is right"
        )
    names[name] = line
