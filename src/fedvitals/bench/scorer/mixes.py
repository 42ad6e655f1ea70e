"""What lessons are made of: how often what is drawn, and how a fault comes into a job."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

from fedvitals.bench.scorer.kinds import HALVES, KINDS

OF_TOKENS = ("shakespeare", "tokens")  # families whose rows are no numbers


@dataclass(frozen=True, slots=True)
class Lesson:
    """One training, and what is wrong with it: `kind` is "clean" or the name of a fault."""

    number: int
    family: str
    partition: str
    kind: str
    from_round: int
    job: dict[str, Any] = field(hash=False)


@dataclass(frozen=True, slots=True)
class Mix:
    """How often what is drawn."""

    families: tuple[float, ...]
    kinds: tuple[float, ...]
    clean: float
    from_rounds: tuple[int, ...]


FIRST = Mix(
    (5, 0.6, 1.5, 2.2, 0.1, 0.06),
    (2, 1.5, 2.5, 2.5, 3, 3.5, 3.5, 1.5, 1.5, 1.5, 1, 0.7, 0.5, 0.5, 0.5, 0.3, 0.3),
    0.38,
    (0, 5, 5),
)
SECOND = Mix(  # more faults, more of them from the first round on
    (5, 0.3, 1.2, 2.2, 0.05, 0.05),
    (3, 3, 1.5, 3, 2.5, 3.5, 3, 0.7, 1, 2, 1.2, 1.2, 0.3, 0.3, 0.3, 0.2, 0.2),
    0.12,
    (0, 0, 5),
)
THIRD = Mix(  # pictures and texts of few and small rows, and most of the quiet faults
    (0, 1.5, 0, 0, 4, 3),
    (1.5, 0.5, 0.5, 1.5, 4, 4, 4, 0.3, 2, 0.5, 0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.1),
    0.3,
    (0, 5, 5, 5),
)
WIDE = Mix(  # of many worlds: most are sound, since it is sound ones that must be borne whatever they are like
    (),
    (2, 1.5, 2.5, 2.5, 3, 3, 3, 1.5, 1.5, 1.5, 0.7, 0.5, 0.3, 0.3, 0.3, 0.2, 0.2),
    0.5,
    (0, 5, 5),
)


def with_fault(
    draw: random.Random, mix: Mix, family: str, partition: str, clients: int, job: dict[str, Any]
) -> tuple[str, int]:
    """Perhaps a fault in the job: its kind and first round."""
    if draw.random() <= mix.clean:
        return "clean", 0
    kind = draw.choices(list(KINDS), mix.kinds)[0]
    if family in OF_TOKENS and kind == "unnormalised-input":
        kind = "label-flip"
    count = min(draw.choice([1, 1, 3, max(1, int(0.2 * clients))]), max(1, int(0.3 * clients)))
    struck, from_round = sorted(draw.sample(range(clients), count)), draw.choice(mix.from_rounds)
    fault: dict[str, Any] = {"clients": struck, "from_round": from_round, **KINDS[kind]}
    if kind in HALVES and draw.random() < 0.25:
        fault["strength"] = HALVES[kind]
    if partition == "natural":  # its clients have names of their own
        fault["share"] = count / clients
        del fault["clients"]
    job["faults"] = [fault]
    return kind, from_round
