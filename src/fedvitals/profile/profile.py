"""A run in the store -> its profile: where the time and the bytes went, who was waited for, and the verdict."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from fedvitals.printable import safe
from fedvitals.profile.alone import alone_s
from fedvitals.profile.clients import ClientProfile, client_profiles
from fedvitals.profile.communication import Communication, communication
from fedvitals.profile.course import Course, course
from fedvitals.profile.learning import best_accuracy
from fedvitals.profile.path import UNEXPLAINED, Path, critical_path
from fedvitals.profile.phases import clients_phases, path_phases
from fedvitals.profile.rounds import RoundProfile, by_phase, round_profiles
from fedvitals.profile.timeline import Timeline, Works, read_timeline
from fedvitals.profile.verdict import Bottleneck, bottleneck
from fedvitals.store.protocol import RunReader
from fedvitals.store.table import Floats, ParticipationTable
from fedvitals.vocabulary import Evaluation, Run, UpdateBlock

MOST_ROUNDS = 16  # whose updates are looked at


@dataclass(frozen=True, slots=True, eq=False)
class Profile:
    """One run at one instant. Everything is in seconds and bytes."""

    run: Run
    wall_s: float
    breakdown_s: Mapping[str, float]  # by phase, on the critical path; they add up to the wall time
    clients_breakdown_s: Mapping[str, float]  # of all clients' own time together, whether anybody waited for it or not
    bottleneck: Bottleneck | None
    course: Course
    rounds: tuple[RoundProfile, ...]
    clients: tuple[ClientProfile, ...]
    communication: Communication
    evaluations: tuple[Evaluation, ...]  # of the global model
    best_accuracy: float | None
    notes: tuple[str, ...]  # what is missing or did not fit
    timeline: Timeline
    path: Path
    path_phases: Floats  # [pieces of the path, phases]

    @property
    def unexplained_ratio(self) -> float:
        return self.breakdown_s[UNEXPLAINED] / self.wall_s if self.wall_s > 0 else 0.0

    def __str__(self) -> str:
        """In short: the phases by their time, and the bottleneck."""
        phases = sorted(self.breakdown_s.items(), key=lambda pair: -pair[1])
        lines = [f"{safe(self.run.name)}: {len(self.rounds)} rounds in {self.wall_s:.3g} s"]
        lines += [f"  {name:<12}{took:>10.3f} s{took / max(self.wall_s, 1e-12):>8.1%}" for name, took in phases]
        found = self.bottleneck
        if found is not None:
            who = "" if found.client is None else f"client {safe(found.client)}: "
            lines.append(f"bottleneck  {who}{found.phase}, {found.share:.0%} of the time; {safe(found.why, 400)}")
        return "\n".join([*lines, *(f"note  {safe(note, 400)}" for note in self.notes)])


def profile_of(reader: RunReader) -> Profile:
    """The run as it is now."""
    timeline = read_timeline(reader)
    path = critical_path(timeline)
    phases = path_phases(timeline, path)
    alone = alone_s(timeline.works)
    rounds = round_profiles(timeline, path, phases, alone)
    judged = tuple(one for one in reader.evaluations() if one.client is None)
    return Profile(
        run=timeline.run,
        wall_s=timeline.end_ns / 1e9,
        breakdown_s=by_phase(phases),
        clients_breakdown_s=by_phase(clients_phases(timeline)),
        bottleneck=bottleneck(timeline, path, phases),
        course=course(timeline, rounds),
        rounds=rounds,
        clients=client_profiles(timeline, path, alone),
        communication=communication(timeline, reader.layouts(), _some_updates(reader, timeline)),
        evaluations=judged,
        best_accuracy=best_accuracy(judged),
        notes=timeline.notes,
        timeline=timeline,
        path=path,
        path_phases=phases,
    )


def _some_updates(reader: RunReader, timeline: Timeline) -> Iterator[UpdateBlock]:
    """Those of rounds evenly taken from the run: what they tell differs little from one to the next."""
    numbers = np.unique(timeline.participations.round).tolist()
    for number in numbers[:: -(-len(numbers) // MOST_ROUNDS) or 1]:
        yield from reader.update_blocks(round=number)


def nothing_profiled(run: Run, reason: str) -> Profile:
    """Of a run that cannot be read: empty, and it says why."""
    table = ParticipationTable.empty()
    timeline = Timeline(run, (), (), table, Works.of(table, 0), (), (), {}, 0, (reason,))
    path = Path.of(())
    return Profile(
        run=run,
        wall_s=0.0,
        breakdown_s={UNEXPLAINED: 0.0},
        clients_breakdown_s={UNEXPLAINED: 0.0},
        bottleneck=None,
        course=course(timeline, ()),
        rounds=(),
        clients=(),
        communication=communication(timeline, ()),
        evaluations=(),
        best_accuracy=None,
        notes=(reason,),
        timeline=timeline,
        path=path,
        path_phases=path_phases(timeline, path),
    )
