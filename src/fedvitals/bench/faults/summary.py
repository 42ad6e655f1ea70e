"""Lines of results -> the rows that the command prints: each claim with its value, its spread and its goal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from fedvitals.bench.faults import scores
from fedvitals.bench.faults.groups import (
    AT_ONCE,
    EVERY,
    HALF,
    MANY,
    copied_groups,
    hit_enough,
    in_update,
    loud_groups,
    quiet_groups,
)
from fedvitals.bench.faults.judging import OURS, SUSPECTS, Line
from fedvitals.bench.faults.problems import PROBLEMS
from fedvitals.bench.faults.scores import Share
from fedvitals.bench.table import Row

OTHERS = ("FedDebug", "FLDetector", "multi-krum", "tutorials")
WAYS = (OURS, SUSPECTS, *OTHERS)
RECALL_GOAL, PRECISION_GOAL, FALSE_ALARM_GOAL, SUSPECT_GOAL = 0.99, 0.98, 0.01, 0.03
LOUD_GOALS = {f"{EVERY}, {MANY}": RECALL_GOAL, f"{HALF}, {MANY}": 0.90}  # recall, at that precision
COPIED_GOAL = 0.98  # recall, the pair named
QUIET_GOALS = {"label noise": 0.90, "a third of the classes": 0.80, "backdoor": 0.60}  # at least suspected, in MANY
TWICE, TEN_TIMES = 2, 10  # participations


def summary(lines: Sequence[Line]) -> list[Row]:
    """All rows there is something to say in."""
    rows = [*_loud(lines), *_duplicates(lines), *_quiet(lines), *_places(lines), *_clean(lines), *_beside(lines)]
    return [row for row in rows if not math.isnan(row.value)]


def share_row(case: str, measure: str, share: Share, goal: float | None = None, *, at_least: bool = True) -> Row:
    return Row(case, f"{measure} (of {share.of})", share.value, *share.band, "share", goal, at_least)


def _loud(lines: Sequence[Line]) -> Iterator[Row]:
    for name, some in loud_groups(lines).items():
        case, tally, goal = f"loud faults {name}", scores.tally(some), LOUD_GOALS.get(name)
        yield share_row(case, "recall", tally.recall, goal)
        yield share_row(case, "precision", tally.precision, PRECISION_GOAL if goal else None)
        soon = RECALL_GOAL if name == AT_ONCE else None
        yield share_row(case, "found within two participations", scores.found_within(some, TWICE), soon)
        yield share_row(case, "right rule", scores.right_rule(some))


def _duplicates(lines: Sequence[Line]) -> Iterator[Row]:
    for name, some in copied_groups(lines).items():
        tally, goal = scores.tally(some), COPIED_GOAL if name.endswith(MANY) else None
        yield share_row(f"duplicates as pairs, {name}", "recall", tally.recall, goal)
        yield share_row(f"duplicates as pairs, {name}", "precision", tally.precision)


def _quiet(lines: Sequence[Line]) -> Iterator[Row]:
    for name, some in quiet_groups(lines).items():
        case = f"quiet fault: {name}"
        accused = scores.found_within(some, TEN_TIMES, OURS, hit_enough)
        yield share_row(case, "accused within ten participations", accused)
        either = scores.found_within(some, TEN_TIMES, SUSPECTS, hit_enough)
        goal = next((goal for kind, goal in QUIET_GOALS.items() if name.startswith(kind) and name.endswith(MANY)), None)
        yield share_row(case, "accused or suspect within ten participations", either, goal)


def _places(lines: Sequence[Line]) -> Iterator[Row]:
    yield share_row("numeric faults", "right layer", scores.right_place(lines, "layer"))
    yield share_row("numeric faults", "right step", scores.right_place(lines, "step"))
    yield share_row("slow server", "found", scores.server_found(lines))


def _clean(lines: Sequence[Line]) -> Iterator[Row]:
    for name, some in clean_groups(lines).items():
        yield share_row(name, "runs with an accusation", scores.runs_naming(some), FALSE_ALARM_GOAL, at_least=False)
        yield share_row(name, "runs with an accusation after some round", scores.runs_naming_ever(some))
        either = scores.runs_naming(some, SUSPECTS)
        yield share_row(name, "runs with an accused or suspect client", either, SUSPECT_GOAL, at_least=False)
    for what, words in (("accusing", "warns"), ("suspecting", "suspects")):
        for code, share in scores.runs_by_rule(lines, what).items():
            yield share_row("clean runs, by rule", f"{code} {words}", share)


def clean_groups(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Clean runs: all, on data never used in development, on each of these, and those whose clients differ most."""
    clean = [line for line in lines if line.cell.clean]
    unseen = [name for name, problem in PROBLEMS.items() if problem.reserved]
    return {
        "clean runs": clean,
        "clean runs, data sets never used in development": [
            line for line in clean if PROBLEMS[line.cell.problem].reserved
        ],
        **{f"clean runs, {name}": [line for line in clean if line.cell.problem == name] for name in unseen},
        "clean runs, dirichlet 0.1 and natural": [
            line for line in clean if line.cell.partition in ("dirichlet-0.1", "natural")
        ],
    }


def _beside(lines: Sequence[Line]) -> Iterator[Row]:
    """F1 over the same cells: faults that show in updates, which is all that the others look at."""
    some = [line for line in lines if in_update(line)]
    for way in WAYS:
        tally = scores.tally(some, way)
        yield Row("faults in updates, all cells", f"F1, {way}", tally.f1, tally.f1, tally.f1, "F1")
    for partition, cells in feddebug_marks(lines).items():
        for way in (OURS, "FedDebug"):
            tally = scores.tally(cells, way)
            yield share_row(f"one client's labels flipped, {partition}", f"found, {way}", tally.recall)


def feddebug_marks(lines: Sequence[Line]) -> dict[str, list[Line]]:
    """FedDebug's own circumstances, by partition: one client whose labels are all wrong, all clients every round."""
    found: dict[str, list[Line]] = {}
    for line in lines:
        cell = line.cell
        same = (cell.fault, cell.strength, cell.bad, cell.share) == ("label-flip", "default", "1", 1.0)
        if same and cell.from_round == 0 and cell.partition != "natural":
            found.setdefault(cell.partition, []).append(line)
    return dict(sorted(found.items(), key=lambda item: (item[0] != "iid", -float(item[0].partition("-")[2] or 0))))
