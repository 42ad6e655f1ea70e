"""The engine's order: a TOML file, a dict or plain objects in; one checked, frozen `Job` out.

Loads neither torch nor numpy, so a command can refuse a bad job before it has paid for them.
"""

from __future__ import annotations

import math
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from fedvitals.errors import JobError, nearest
from fedvitals.faults.registry import make
from fedvitals.faults.spec import FaultSpec, refuse_duplicates
from fedvitals.train.keys import Section, refuse_unknown, shown
from fedvitals.train.sections import (
    CodecSpec,
    DataSpec,
    ExecuteSpec,
    ModelSpec,
    NetworkSpec,
    ObserveSpec,
    ServerSpec,
    TrainSpec,
)

MAX_FILE_BYTES = 1_000_000
MAX_SEED = 2**63 - 1
PLAIN_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,99}")
SECTIONS: Mapping[str, type[Section]] = {
    one.title: one
    for one in (DataSpec, ModelSpec, TrainSpec, ServerSpec, CodecSpec, NetworkSpec, ExecuteSpec, ObserveSpec)
}
KNOWN = ("name", "seed", *SECTIONS, "faults")


@dataclass(frozen=True, slots=True)
class Job:
    """A training, described whole. Two equal jobs give the same clients, batches, faults and final weights."""

    name: str = "digits"
    seed: int = 42
    data: DataSpec = field(default_factory=DataSpec)
    model: ModelSpec = field(default_factory=ModelSpec)
    train: TrainSpec = field(default_factory=TrainSpec)
    server: ServerSpec = field(default_factory=ServerSpec)
    codec: CodecSpec = field(default_factory=CodecSpec)
    network: NetworkSpec = field(default_factory=NetworkSpec)
    execute: ExecuteSpec = field(default_factory=ExecuteSpec)
    observe: ObserveSpec = field(default_factory=ObserveSpec)
    faults: tuple[FaultSpec, ...] = ()

    def __post_init__(self) -> None:
        _check_name(self.name)
        for title, section in SECTIONS.items():
            if not isinstance(getattr(self, title), section):
                raise JobError(f"{title} should be a {section.__name__}; Job.from_dict takes plain tables")
        if type(self.seed) is not int or not 0 <= self.seed <= MAX_SEED:
            raise JobError(f"seed = {shown(self.seed)} should be a whole number from 0 to {MAX_SEED}")
        if 0 < self.data.clients < self.train.clients_per_round:
            raise JobError(
                f"train.clients_per_round = {self.train.clients_per_round} is more than data.clients = "
                f"{self.data.clients}; right is at most {self.data.clients}"
            )
        object.__setattr__(self, "faults", tuple(self.faults))
        if not all(isinstance(fault, FaultSpec) for fault in self.faults):
            raise JobError("faults should be FaultSpecs; Job.from_dict takes plain tables")
        self._check_faults()
        self._check_clock()
        self._check_adapting()
        self._check_pruning()
        self._check_mode()
        self._check_excluded()

    @property
    def asked(self) -> int:
        """Clients that a round asks, of which it needs `train.clients_per_round`; async: clients at work at once."""
        if self.server.mode == "async":
            return self.server.concurrency
        return math.ceil(round(self.server.over_select * self.train.clients_per_round, 9))  # 1.1 * 10 is 11

    @property
    def impatient(self) -> bool:
        """Whether rounds go on without some of the clients they asked."""
        return self.server.deadline_s > 0.0 or self.server.over_select > 1.0

    def _check_clock(self) -> None:
        """What is reckoned needs the clock that is: on the real one nobody plays slow, and clients that share workers
        are late by whose turn it is."""
        if self.execute.clock == "virtual":
            return
        if self.network.profile != "none":
            raise JobError(
                f"network.profile = {shown(self.network.profile)} is reckoned, and not waited for: it needs "
                f'execute.clock = "virtual"; on the real clock network.profile = "none" is right'
            )
        own_worker = self.execute.executor == "processes" and self.execute.workers >= self.asked
        if not self.impatient or (own_worker and self.server.mode == "sync"):
            return
        late = ("server.deadline_s", self.server.deadline_s) if self.server.deadline_s else None
        name, value = late or ("server.over_select", self.server.over_select)
        raise JobError(
            f"{name} = {shown(value)} on the real clock needs rounds whose clients have a worker each: server.mode = "
            f'"sync", execute.executor = "processes" and execute.workers of at least {self.asked}, or who is late is '
            f'a matter of whose turn it was; else it needs execute.clock = "virtual"'
        )

    def _check_mode(self) -> None:
        """What belongs to one mode alone."""
        server = self.server
        if server.mode == "sync":
            for name, value, instead in (("aggregator", "fedasync", "fedavg"), ("selection", "pisces", "oort")):
                if getattr(server, name) == value:
                    raise JobError(
                        f'server.{name} = "{value}" goes by how stale updates are, which server.mode = "async" alone '
                        f'has; with "sync" take for example "{instead}"'
                    )
            if server.late != "drop":
                raise JobError(
                    f'server.late = "{server.late}" is for server.mode = "async": a round that went on is over; right '
                    f'is "drop"'
                )
            return
        if server.over_select != 1.0:
            raise JobError(
                f'server.over_select = {server.over_select:g} is for rounds; server.mode = "async" has none, and keeps '
                f"server.concurrency = {server.concurrency} clients at work; right is 1.0"
            )
        if self.execute.clock == "real" and self.execute.executor not in ("auto", "processes"):
            raise JobError(
                f'server.mode = "async" on the real clock needs clients that work at the same time, and '
                f'execute.executor = "{self.execute.executor}" has none; right is "processes", or '
                f'execute.clock = "virtual"'
            )
        there = self.data.clients - len(self.train.exclude)
        if self.data.clients > 0 and there < server.buffer:
            raise JobError(
                f"server.buffer = {server.buffer} would never fill: a client has one update in it, and there are "
                f"{there} clients; right is at most {there}"
            )

    @property
    def pruning_rounds(self) -> tuple[int, int]:
        """Rounds after which weights begin to be cut, and after which all are cut that are to be."""
        rounds = self.train.rounds
        first = self.server.prune_from or rounds // 3  # before, magnitude says little: weights have hardly moved
        return first, self.server.prune_until or max(round(5 * rounds / 6), first + 1)

    def _check_pruning(self) -> None:
        server, (first, last) = self.server, self.pruning_rounds
        if not server.prune:
            return
        if server.mode == "async":
            raise JobError(
                'server.prune is for rounds, in which all clients have the same weights; server.mode = "async" has '
                'none: take mode = "sync", or prune = 0.0'
            )
        if not first < last <= self.train.rounds:
            raise JobError(
                f"server.prune would begin after {first} rounds (prune_from = {server.prune_from}) and end after "
                f"{last} (prune_until = {server.prune_until}); right is in this order, within train.rounds = "
                f"{self.train.rounds}"
            )

    def _check_adapting(self) -> None:
        if not self.codec.adapt:
            return
        if self.server.deadline_s == 0.0:
            raise JobError("codec.adapt = true chooses shares by the deadline: set server.deadline_s above 0")
        if self.execute.clock == "real":
            raise JobError(
                "codec.adapt = true goes by how long uploads take, and on the real clock clients are on this machine; "
                'right is execute.clock = "virtual", or adapt = false'
            )

    def _check_excluded(self) -> None:
        """Clients of a dealt-out source are known by their numbers; those of others when the data is there."""
        clients, excluded = self.data.clients, self.train.exclude
        if self.data.partition == "natural":
            return
        if not all(_is_index(client, clients) for client in excluded):
            refuse_unknown(excluded, [str(number) for number in range(clients)])
        if len(excluded) == clients:
            raise JobError(f"train.exclude leaves none of {clients} clients")

    def _check_faults(self) -> None:
        natural = self.data.partition == "natural"  # its ids are known only to the data
        for fault in self.faults:
            make(fault)  # refuses an unknown kind or an impossible strength
            for client in () if natural else fault.clients:
                if not _is_index(client, self.data.clients):
                    raise JobError(
                        f"faults: {fault.kind} is for client {client!r}, who is not there; clients are 0 to "
                        f"{self.data.clients - 1}"
                    )
        refuse_duplicates(self.faults)

    @classmethod
    def load(cls, path: str | Path) -> Job:
        """The job in a TOML file."""
        return cls.from_dict(_read(Path(path)), source=str(path))

    @classmethod
    def from_dict(cls, given: Mapping[str, Any], source: str = "job") -> Job:
        """The job in a mapping shaped like the TOML file; `source` is how errors call it."""
        try:
            return _made(given)
        except JobError as error:
            raise JobError(f"{source}: {error}") from error

    def to_dict(self) -> dict[str, Any]:
        """Every key with its value, ready for JSON or TOML; `from_dict` gives the same job back."""
        said: dict[str, Any] = {"name": self.name, "seed": self.seed}
        for title in SECTIONS:
            said[title] = _section_dict(getattr(self, title))
        said["faults"] = [fault.to_dict() for fault in self.faults]
        return said

    def replaced(self, changes: Mapping[str, Any], source: str = "override") -> Job:
        """This job with some keys changed, by dotted name: `{"train.lr": 0.5}`. Texts are read as TOML values."""
        said = self.to_dict()
        try:
            for dotted, value in changes.items():
                _put(said, dotted, value)
        except JobError as error:
            raise JobError(f"{source}: {error}") from error
        return Job.from_dict(said, source)


def _made(given: Mapping[str, Any]) -> Job:
    if not isinstance(given, Mapping):
        raise JobError(f"a job is a table of sections, not {shown(given)}")
    for word in given:
        if word not in KNOWN:
            raise JobError(f"there is no key or section {word!r}{nearest(str(word), list(KNOWN))}")
    parts: dict[str, Any] = {
        title: _section(section, given[title]) for title, section in SECTIONS.items() if title in given
    }
    parts["faults"] = tuple(_faults(given.get("faults", [])))
    parts["name"] = given["name"] if "name" in given else _default_name(parts.get("data", DataSpec()).source)
    if "seed" in given:
        parts["seed"] = given["seed"]
    return Job(**parts)


def _section(section: type[Section], given: object) -> Section:
    if not isinstance(given, Mapping):
        raise JobError(f"{section.title} = {shown(given)} should be a section: [{section.title}] and its keys below it")
    known = [one.name for one in fields(section)]  # type: ignore[arg-type]  # every section is a dataclass
    for word in given:
        if word not in known:
            raise JobError(f"{section.title}.{word}: there is no such key{nearest(str(word), known)}")
    return section(**given)


def _faults(given: object) -> Iterator[FaultSpec]:
    if not isinstance(given, list | tuple) or not all(isinstance(one, Mapping) for one in given):
        raise JobError(f"faults = {shown(given)} should be a list of tables: [[faults]] and its keys below it")
    known = [one.name for one in fields(FaultSpec)]
    for number, table in enumerate(given, start=1):
        for word in table:
            if word not in known:
                raise JobError(f"faults number {number}: there is no key {word!r}{nearest(str(word), known)}")
        if "kind" not in table:
            raise JobError(f'faults number {number} has no kind; for example kind = "sign-flip"')
        try:
            yield FaultSpec(**table)
        except JobError as error:
            raise JobError(f"faults number {number}: {error}") from error


def _section_dict(section: Section) -> dict[str, Any]:
    values = {one.name: getattr(section, one.name) for one in fields(section)}  # type: ignore[arg-type]  # a dataclass
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def _put(said: dict[str, Any], dotted: str, value: object) -> None:
    title, _, word = dotted.partition(".")
    if title in SECTIONS and word:
        known = list(said[title])
        if word not in known:
            raise JobError(f"{dotted}: there is no such key{nearest(word, known)}")
        said[title][word] = _from_text(value, said[title][word])
    elif dotted in ("name", "seed", "faults"):
        said[dotted] = _from_text(value, said[dotted])
    elif title in SECTIONS:
        raise JobError(f"{dotted!r} is a section; name a key of it, such as {title}.{next(iter(said[title]))}")
    else:
        names = ["name", "seed", "faults", *(f"{one}.{key}" for one in SECTIONS for key in said[one])]
        raise JobError(f"there is no key {dotted!r}{nearest(dotted, names)}")


def _from_text(value: object, present: object) -> object:
    """A text from a command line as the TOML value it spells; a bare word where the key holds text."""
    if not isinstance(value, str):
        return value
    try:
        parsed = tomllib.loads(f"value = {value}")
    except (ValueError, RecursionError):
        return value
    if set(parsed) != {"value"} or (isinstance(present, str) and not isinstance(parsed["value"], str)):
        return value
    return parsed["value"]


def _is_index(client: str, clients: int) -> bool:
    return client.isdecimal() and len(client) <= 7 and str(int(client)) == client and int(client) < clients


def _default_name(source: object) -> str:
    """The source's own name where the job has none: digits, synthetic, a file's stem, a function."""
    name = Path(str(source)).stem if str(source).endswith(".npz") else str(source).rpartition(":")[2]
    try:
        _check_name(name)
    except JobError:
        return "job"
    return name


def _check_name(name: object) -> None:
    if type(name) is not str:
        raise JobError(f"name = {shown(name)} should be text")
    # What the store takes as the name of a run: a job must not train for an hour and then have no place to go.
    if not PLAIN_NAME.fullmatch(name) or ".." in name:
        raise JobError(
            f"name = {shown(name)} should be a plain name: 1 to 100 letters, digits, '.', '_' and '-', no '.' or '-' "
            "at the start, no '..'"
        )


def _read(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file():
            raise JobError(f"{path}: there is no such file" if not path.exists() else f"{path} is not a file")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        raise JobError(f"{path} cannot be read: {error}") from error
    if len(data) > MAX_FILE_BYTES:
        raise JobError(f"{path} is larger than {MAX_FILE_BYTES:,} bytes: that is not a job")
    try:
        return tomllib.loads(data.decode("utf-8-sig"))  # some editors begin with a mark
    except UnicodeDecodeError as error:
        raise JobError(f"{path} is not UTF-8 text: byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise JobError(f"{path} is not valid TOML: {error}") from error
