"""Further worlds before the whole doctor: what all rules together say of runs whose data nobody knows.

`python -m fedvitals.bench.scorer --data FOLDER --doctor 1000` plays so many lessons that neither a scorer nor a rule
was made on. The fault bench has few data sets; this shows how often a sound run is accused where data is wild.
"""

from __future__ import annotations

import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from fedvitals.bench.charted import charted
from fedvitals.bench.faults.judging import ACCUSED, SUSPECTED, held_responsible
from fedvitals.bench.faults.truth import truth_of
from fedvitals.bench.scorer import wide
from fedvitals.bench.scorer.lessons import processes
from fedvitals.bench.scorer.mixes import Lesson
from fedvitals.diagnose.diagnosis import examine
from fedvitals.diagnose.registry import RULES
from fedvitals.errors import FedvitalsError
from fedvitals.settings import Settings
from fedvitals.train.engine import Training
from fedvitals.train.job import Job
from fedvitals.train.threads import one_thread


@dataclass(frozen=True, slots=True)
class Seen:
    """One run: who was bad, and whom the doctor holds responsible."""

    kind: str
    bad: frozenset[str]
    accused: frozenset[str]
    either: frozenset[str]  # accused or suspect

    @property
    def clean(self) -> bool:
        return self.kind == "clean"


def seen(lesson: Lesson) -> Seen | None:
    """A lesson's training, looked at when it is over; None where it cannot be trained."""
    with one_thread(), tempfile.TemporaryDirectory() as place:
        try:
            training = Training.prepare(Job.from_dict(lesson.job))
            chart = charted(training, Settings(dir=place)).chart
        except FedvitalsError:
            return None
        bad = frozenset(truth_of(training, chart).struck)
        findings = examine(chart, RULES).findings
    accused, either = (held_responsible(findings, bad, how) for how in ((ACCUSED,), (ACCUSED, SUSPECTED)))
    return Seen(lesson.kind, bad, accused, either)


def all_seen(numbers: Iterable[int], workers: int) -> Iterator[Seen | None]:
    """In the order of these numbers; None for one that cannot be trained."""
    with processes(workers) as pool:
        yield from pool.map(seen, map(wide.lesson, numbers), chunksize=4)


def table(tried: Sequence[Seen | None]) -> str:
    """A line for the sound runs, and one a kind of fault: how many of its clients were found, and how many others."""
    runs = [one for one in tried if one is not None]
    sound = [one for one in runs if one.clean]
    accused, either = sum(bool(one.accused) for one in sound), sum(bool(one.either) for one in sound)
    lines = [
        f"{len(sound)} sound runs: somebody accused in {accused}, accused or suspect in {either}; "
        f"{len(tried) - len(runs)} lessons could not be trained",
        f"{'kind':20} runs  clients accused  either  honest accused",
    ]
    counts: dict[str, list[int]] = defaultdict(lambda: [0] * 5)
    for one in runs:
        if not one.clean and one.bad:
            found = len(one.bad & one.accused), len(one.bad & one.either), len(one.accused - one.bad)
            counts[one.kind] = [a + b for a, b in zip(counts[one.kind], (1, len(one.bad), *found), strict=True)]
    for kind, (number, clients, right, named, wrong) in sorted(counts.items()):
        lines.append(f"{kind:20} {number:4} {clients:8} {right / clients:7.2f} {named / clients:7.2f} {wrong:15}")
    return "\n".join(lines)
