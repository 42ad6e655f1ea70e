"""A small model of the run: who worked how long in each round, and how many at a time.

The simulator replays it with changed durations. What the model does not know (the server's phases, gaps, what lies
between rounds) stays as it was: a prediction is the recorded time and the difference of two simulations.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedvitals.profile.profile import Profile
from fedvitals.profile.timeline import NOBODY, Timeline, Works
from fedvitals.profile.whatif.cohorts import Draw, draw_of
from fedvitals.profile.whatif.told import Told
from fedvitals.randomness import stream
from fedvitals.store.table import Floats, Ints
from fedvitals.vocabulary import Outcome

if TYPE_CHECKING:
    from fedvitals.profile.whatif.batches import Batches
    from fedvitals.profile.whatif.simulate import Simulated

SLACK_NS = 1_000_000  # two clients overlap who are at work together for longer than this
EVERYBODY = 1_000_000  # workers: more than there are clients


class Task(NamedTuple):
    """One client's work, as it was recorded."""

    client: str
    seconds: float
    delivered: bool
    late: bool
    row: int  # among the timeline's participations


class RoundTimes(NamedTuple):
    """One round as it was."""

    number: int
    wall_s: float
    until_next_s: float  # from its start to the next one's, or to the end of the run
    before_s: float  # from its start to its clients'
    clients_s: float  # from their start until the last one that was waited for was done
    gap_s: float  # between its clients' first start and last end, in which none worked


class Tried(NamedTuple):
    """What a codec makes of an update, on average."""

    bytes: float
    seconds: float  # of encoding it and decoding it again, here


@dataclass(frozen=True, eq=False)
class Model:
    """One run. `workers` is how many clients are at work at a time; EVERYBODY: each has a computer of its own."""

    profile: Profile
    told: Told
    draw: Draw
    workers: int
    batched: bool  # clients were trained as one: their own times are shares
    rounds: tuple[RoundTimes, ...]
    history: Mapping[str, Sequence[Task]]  # of each client that was asked, by attempt
    tried: Mapping[str, Tried] = field(default_factory=dict)  # codecs, on updates of this run

    @staticmethod
    def of(profile: Profile, tried: Mapping[str, Tried] | None = None) -> Model:
        timeline, told = profile.timeline, Told.of(profile.run)
        return Model(
            profile=profile,
            told=told,
            draw=draw_of(timeline, told),
            workers=_workers(timeline, told),
            batched=bool((timeline.works.client == NOBODY).any()),
            rounds=tuple(_rounds(timeline, told)),
            history=_history(timeline, told),
            tried=tried or {},
        )

    @property
    def timeline(self) -> Timeline:
        return self.profile.timeline

    @property
    def side_by_side(self) -> bool:
        """Whether clients wait for nobody, and a round for the slowest."""
        return self.workers == EVERYBODY and not self.batched

    @cached_property
    def asked(self) -> int:
        """Clients a round, usually."""
        table = self.timeline.participations
        counts = np.unique(table.round[table.round >= 0], return_counts=True)[1]  # a round may have any number
        return int(np.median(counts)) if len(counts) else 0

    @property
    def patience(self) -> tuple[int | None, float | None]:
        """With how many clients the run's rounds went on, and for how long they waited at most; None: for all."""
        if not self.told.is_job:
            return None, None
        deadline_s = self.told.number("server.deadline_s", 0.0)
        more = self.told.number("server.over_select", 1.0) > 1.0
        wanted = int(self.told.number("train.clients_per_round", 0.0))
        return (wanted if more and wanted > 0 else None), (deadline_s if deadline_s > 0 else None)

    @cached_property
    def before(self) -> Simulated:
        """The simulation of what was, which every prediction is held against."""
        from fedvitals.profile.whatif.simulate import Change, simulated

        return simulated(self, Change())

    @cached_property
    def batches(self) -> Batches:
        """Clients that were trained as one."""
        from fedvitals.profile.whatif.batches import batches_of

        return batches_of(self)

    @cached_property
    def rows(self) -> list[Ints]:
        """Of each of the timeline's clients, its participations."""
        client = self.timeline.participations.client
        order = np.argsort(client, kind="stable")
        return np.split(order, np.cumsum(np.bincount(client, minlength=len(self.timeline.clients)))[:-1])

    def seconds(self, more_s: Floats) -> list[float]:
        """Of each of the timeline's participations, where they take so much more."""
        found = more_s.copy()
        for some in self.history.values():
            for task in some:
                found[task.row] += task.seconds
        changed: list[float] = np.maximum(found, 0.0).tolist()
        return changed

    def task(self, client: str, attempt: int) -> Task:
        """A client's work at this attempt: as recorded, or like an earlier one; one who never was asked works like
        somebody else."""
        own = self.history.get(client)
        if own:
            return own[attempt % len(own)]
        others = self.history[self._stand_in(client)]
        return others[attempt % len(others)]._replace(client=client)

    def _stand_in(self, client: str) -> str:
        names = sorted(self.history)
        return names[int(stream(0, "what-if stand-in", client).integers(len(names)))]


def _workers(timeline: Timeline, told: Told) -> int:
    """As the engine says; else the most that were at work at a time, and EVERYBODY where all of each round were."""
    if told.virtual:
        return EVERYBODY
    works = timeline.works
    if told.one_machine:
        most = max((len(rows) for rows in _by_round(works)), default=1)
        if told.own_workers and 1 < most <= told.processes:
            return EVERYBODY
        return max(min(told.processes, most), 1)
    most, all_at_once = 1, len(works) > 0
    for rows in _by_round(works):
        together = _together(works, rows)
        most = max(most, together)
        all_at_once = all_at_once and together == len(rows)
    return EVERYBODY if all_at_once and most > 1 else most


def _by_round(works: Works) -> list[Ints]:
    order = np.argsort(works.round, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(works.round[order])) + 1) if len(order) else []


def _together(works: Works, rows: Ints) -> int:
    """The most that were at work at the same time."""
    starts, ends = works.start_ns[rows], np.maximum(works.end_ns[rows] - SLACK_NS, works.start_ns[rows])
    instants = np.concatenate([starts, ends])
    begins = np.repeat([1, -1], len(rows))
    return int(np.cumsum(begins[np.lexsort((begins, instants))]).max(initial=1))


def _rounds(timeline: Timeline, told: Told) -> list[RoundTimes]:
    works, table = timeline.works, timeline.participations
    waited_for = table.outcome != Outcome.LATE
    found = []
    for place, one in enumerate(timeline.rounds):
        rows = np.flatnonzero(works.round == one.number)
        end_ns = one.end_ns or one.start_ns
        following = timeline.rounds[place + 1].start_ns if place + 1 < len(timeline.rounds) else timeline.end_ns
        first = int(works.start_ns[rows].min()) if len(rows) else end_ns
        in_time = (table.round == one.number) & waited_for
        last = min(int(table.end_ns[in_time].max(initial=first)), timeline.end_ns)
        found.append(
            RoundTimes(
                number=one.number,
                wall_s=(end_ns - one.start_ns) / 1e9,
                until_next_s=max(following - one.start_ns, 0) / 1e9,
                before_s=max(first - one.start_ns, 0) / 1e9,
                clients_s=max(last - first, 0) / 1e9,
                gap_s=_gap_s(timeline, told, one.number, rows, max(last - first, 0) / 1e9),
            )
        )
    return found


def _gap_s(timeline: Timeline, told: Told, number: int, rows: Ints, clients_s: float) -> float:
    """Seconds between the first start and the last end in which none worked."""
    works = timeline.works
    if not len(rows):
        return 0.0
    if told.one_machine and told.processes == 1 and not (works.client[rows] == NOBODY).any():
        return max(clients_s - float(_took_s(timeline, told)[timeline.participations.round == number].sum()), 0.0)
    order = rows[np.argsort(works.start_ns[rows], kind="stable")]
    reached = np.maximum.accumulate(works.end_ns[order])[:-1]
    return float(np.maximum(works.start_ns[order][1:] - reached, 0).sum()) / 1e9


def _took_s(timeline: Timeline, told: Told) -> Floats:
    """How long each participation kept somebody busy: from start to end, or the sum of its phases on the engine's own
    machine, where a client's end may have waited for that of others."""
    table = timeline.participations
    measured = np.maximum(table.end_ns - table.start_ns, 0) / 1e9
    phases = np.nansum(np.maximum(table.phases_s, 0.0), axis=1)
    summed: Floats = np.where(phases > 0, np.minimum(phases, measured), measured)
    return summed if told.one_machine else measured


def _history(timeline: Timeline, told: Told) -> dict[str, list[Task]]:
    table = timeline.participations
    took_s = _took_s(timeline, told)
    found: dict[str, list[tuple[int, Task]]] = defaultdict(list)
    came = np.isin(table.outcome, (Outcome.USED, Outcome.LATE, Outcome.REJECTED))
    late = table.outcome == Outcome.LATE
    columns = [column.tolist() for column in (table.client, table.attempt, took_s, came, late)]
    for row, (client, attempt, seconds, delivered, too_late) in enumerate(zip(*columns, strict=True)):
        name = timeline.clients[client]
        found[name].append((attempt, Task(name, seconds, delivered, too_late, row)))
    return {name: [task for _, task in sorted(some)] for name, some in found.items()}
