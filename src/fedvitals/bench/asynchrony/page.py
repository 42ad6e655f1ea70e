"""What was compared -> the page of the documentation, its picture, and the rows for programs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from fedvitals.bench.asynchrony.cases import (
    FEDBUFF,
    FEDBUFF_MEMORY,
    MEMORY_PISCES,
    OORT,
    RANDOM,
    RANDOM_MEMORY,
    STRICT,
    WAYS,
)
from fedvitals.bench.asynchrony.measuring import ALL, SHARE, Compared
from fedvitals.bench.table import Row, document
from fedvitals.show.lines import Line, line_chart
from fedvitals.show.markdown import table

PAGE = Path("explanation") / "async-bench.md"
PICTURE, ROWS = "async-bench.svg", "async-bench.json"
DRAWN = (RANDOM, RANDOM_MEMORY, OORT, STRICT, MEMORY_PISCES, FEDBUFF, FEDBUFF_MEMORY)  # more would hide each other
PLACES = 120
INTRODUCTION = f"""\
How much sooner a model is there without rounds, or with better chosen clients, where clients are slow or go away.
`fedvitals bench async` measures it on the virtual clock: the same devices and rows for every way, seed by seed.

1,000 clients with 32 rows each, of two of thirty classes. A participation takes a second in the median, log-normal with
sigma 1.0 over the clients; one in ten never comes back, and the server is not told. The server waits for 100 clients at
a time, whatever the way: synchronous rounds ask 1.3 times the 77 they need and go on with the first, or at their
deadline. Of five deadlines (0.28, 0.51, 1, 1.96 and 3.6 seconds: percentiles 10, 25, 50, 75 and 90 of the delays) each
synchronous way has the one with which it reaches the target first, seed by seed. The target is {SHARE:.0%} of the best
final accuracy of synchronous rounds with random clients, and has to hold for three evaluations in a row.

Late clients go on with what they do, and nobody asks them before they are done. So with a deadline more than 100 are at
work: about 290 in rounds of 0.51 s, 190 in rounds of 1 s, 140 in rounds of 2 s, and 390 with FedBuff, for which a place
is free after 0.28 s (`deadline_s`). Rounds lose what comes late; FedBuff uses it (`late = "use"`), and nothing is lost
but what never comes: some 300 updates come a second.

The strict ways never have more than 100 at work, late ones included. Without a deadline slow clients hold the places
most of the time, and some 60 updates come a second, not twice as many as rounds have; late ones can be told to stop
(`late = "stop"`), which hardly changes that. But of clients with two classes each, ten updates are mostly noise, and
one is worth no more here than in a round. A server with a memory (`remember = true`) steps by the mean of what all
clients sent last, corrected by those that came, and half of the updates are enough. Pisces, which turns to clients
whose updates come fresh, then has about 150 a second; without the memory its choice costs accuracy. Rounds may have a
memory too, and are about twice as quick with it: beside them, not beside rounds as they are, one sees what asynchrony
alone gives. It takes 4 bytes a value of the model for each client, here 12 MB."""
HISTORY = """\
How this came to be: at first a client had two of ten classes, and all rates were at their defaults. There a deadline of
half a second cost rounds nothing, as a few clients a step were enough, and FedBuff, without a deadline, was 1.8 times
and Oort 1.1 times sooner: both missed. Where slow clients held other classes than quick ones, which was tried next,
they were 4.6 and 1.9 times sooner; that is not measured any more. FedBuff was then made to use what comes late, and
Oort to turn away from clients that are too slow for any round. With the rates tuned the first job was over before much
could be told of anybody (13 s, of which asking every client once takes 5), so thirty classes took the place of ten:
steps need more clients, and random rounds about a hundred steps. Strict FedBuff missed its goal there with 1.85 times,
and was then given a memory. Rates were chosen for each way on seeds 2 and 3, from 0.1 and 0.3 for clients with 1, 2 and
4 for the server (and 8, for rounds): 0.3 with 2 for rounds, with 4 for rounds with a memory, with 1 for FedBuff, with 2
for FedBuff with a memory, and 0.1 with 4 where Pisces chooses. Buffers were chosen from 5, 10, 20 and 40, the
deadline of FedBuff from 0.28 and 0.51, those at which late ones are stopped from all five; and of the strict ways the
one that is held to the goal. FedAsync has its own rate and no deadline, and a third of the updates. On those two seeds
a memory made Oort no quicker, and round-robin, which always asks who was heard longest ago, worse at these rates."""
READING = """\
"Times sooner" is the time that synchronous rounds with random clients need to the target, divided by that of the way
beside it. Values are medians over the seeds, with the 10th and 90th percentile. Never reaching the target counts as 0
times sooner, and with the end of the training as its time. The last column is on the own held-out rows of the slowest
tenth of the clients, at the end: what a way saves by leaving out slow clients, it pays there."""


def write(folder: Path, found: Sequence[Compared], rows: Sequence[Row]) -> list[Path]:
    """Make the page, its picture and the rows in a folder of documentation; gives the files."""
    page = folder / PAGE
    page.parent.mkdir(parents=True, exist_ok=True)
    picture, data = page.parent / PICTURE, page.parent / ROWS
    page.write_text(text(found, rows), encoding="utf-8")
    picture.write_text(drawn(found), encoding="utf-8")
    data.write_text(document("async", rows), encoding="utf-8")
    return [page, picture, data]


def text(found: Sequence[Compared], rows: Sequence[Row]) -> str:
    """The whole page."""
    parts = [
        "# The asynchrony bench",
        "<!-- Generated by `fedvitals bench async --write docs`: run it again, do not change this page. -->",
        INTRODUCTION,
        f"![Accuracy over time]({PICTURE})",
        _table(found, rows),
        HISTORY,
        READING,
        f"All rows: [{ROWS}]({ROWS}).",
    ]
    return "\n\n".join(parts) + "\n"


def _table(found: Sequence[Compared], rows: Sequence[Row]) -> str:
    known = {(row.case, row.measure): row for row in rows}

    def cell(way: str, measure: str, digits: int) -> str:
        row = known.get((way, measure))
        return "" if row is None else f"{row.value:.{digits}f} ({row.low:.{digits}f} .. {row.high:.{digits}f})"

    lines = [
        (
            way.name,
            cell(way.name, "times sooner at the target", 2),
            cell(way.name, "time to the target", 1),
            cell(way.name, "best deadline of five", 2),
            cell(way.name, "final accuracy", 3),
            cell(way.name, "accuracy on the slowest tenth of the clients", 3),
        )
        for way in WAYS
    ]
    head = ("way", "times sooner", "seconds to the target", "its deadline, s", "final accuracy", "slowest tenth")
    target = known[ALL, "target accuracy"].value
    return f"Target {target:.3f}, {len(found)} seeds. {_goals(rows)}\n\n{table(head, lines)}"


def _goals(rows: Sequence[Row]) -> str:
    held = [row for row in rows if row.goal is not None]
    said = [f"{row.case} at least {row.goal:g} ({'met' if row.met else 'missed'})" for row in held]
    return f"Goals, times sooner: {'; '.join(said)}."


def drawn(found: Sequence[Compared]) -> str:
    """Accuracy over time: the median over the seeds, and between which percentiles they lie."""
    longest = max(one.until_s(RANDOM.name) for one in found)
    places = np.linspace(0.0, 1.2 * longest, PLACES)
    lines = {}
    for way in DRAWN:
        curves = np.stack([one.races[way.name].at(places.tolist()) for one in found])
        low, middle, high = np.percentile(curves, (10, 50, 90), axis=0)
        past = places > max(one.races[way.name].times_s[-1] for one in found)
        middle[past] = low[past] = high[past] = np.nan
        lines[way.name] = Line(middle.tolist(), low.tolist(), high.tolist())
    target = float(np.median([one.target for one in found]))
    return line_chart("Accuracy over time", places.tolist(), lines, "seconds on the virtual clock", "accuracy", target)
