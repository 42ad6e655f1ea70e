"""Update size changed.

Sees: participations whose update took at least twice or at most half of the bytes that the others of the round took
and that the client's own updates take, beyond the spread of all.

Matters: updates of one model and codec are about as large as each other. One that is not was cut off, encoded
otherwise, or is of another model; a codec whose size jumps no longer saves what it was chosen for.

Evidence: its bytes on the wire, those of the others in the round, and its own before.

False alarms: sizes are compared on a logarithmic scale beyond the robust spread of the run, at a rate of one run in a
hundred over all participations. Codecs that send what is above a threshold vary by nature: their spread is taken from
the run, and only what the number of values that arrived does not explain counts. Messages whose share of values was
chosen by the client's link (`codec.adapt`) are not compared.

Do: compare the codec's configuration on both sides. A size that changed for everybody at once is a changed codec or a
changed model.

Papers: none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.coded import arrived_values
from fedvitals.diagnose.robust import median, spread, threshold
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.timing.spent import round_medians
from fedvitals.diagnose.trends import change
from fedvitals.diagnose.writing import see_client, size, times, write
from fedvitals.store.table import Bools, Floats
from fedvitals.vocabulary import Finding, Grade, Severity

FACTOR = math.log(2)  # half or twice: less than that codecs do by themselves
RATE = 0.01
LEAST_ROUNDS = 3


def _look(chart: Chart) -> Iterator[Finding]:
    table = chart.participations
    known = (table.wire_bytes_up > 0) & ~(table.share > 0)
    if not known.any():
        chosen = bool((table.share > 0).any())
        raise CannotSee("updates were sized by each client's link" if chosen else "the bytes of updates are not known")
    logs = np.where(known, np.log(np.where(known, table.wire_bytes_up, 1.0)), np.nan)
    medians = round_medians(chart, logs)
    middles = np.where(medians > 0, medians, median(logs))
    counts = np.log1p(arrived_values(chart))
    apart = _unexplained(logs - middles, counts - round_medians(chart, counts))
    limit = max(FACTOR, threshold(int(known.sum()), RATE) * spread(apart))
    yield from _of_clients(chart, known & (np.abs(apart) >= limit), middles)
    yield from _of_all(chart, logs, counts)


def _unexplained(sizes: Floats, counts: Floats) -> Floats:
    """Of sizes beyond the others', as logarithms, what is left beside that there are so many more or fewer values."""
    same = np.where(np.sign(sizes) == np.sign(counts), np.abs(counts), 0.0)
    found: Floats = np.sign(sizes) * np.fmax(np.abs(sizes) - same, 0.0)
    return found


def _of_clients(chart: Chart, marked: Bools, middles: Floats) -> Iterator[Finding]:
    table = chart.participations
    for client in np.unique(table.client[marked]).tolist():
        rows = chart.histories[client]
        odd = rows[marked[rows]]
        rest = rows[~marked[rows] & (table.wire_bytes_up[rows] > 0) & ~(table.share[rows] > 0)]
        own, theirs = median(table.wire_bytes_up[odd]), math.exp(float(np.median(middles[odd])))
        before = f", its own otherwise {size(median(table.wire_bytes_up[rest]))}" if len(rest) else ""
        yield write(
            RULE,
            Severity.WARNING,
            f"client {chart.clients[client]} sent {size(own)}, the others of its rounds {size(theirs)}{before}, in "
            f"{len(odd)} of {times(len(rows), 'participation')}",
            grade=Grade.ACCUSED,
            rounds=table.round[odd].tolist(),
            clients=[chart.clients[client]],
            evidence={"bytes": own, "others": theirs, "count": len(odd), "participations": len(rows)},
            next=[see_client(chart.clients[client])],
        )


def _of_all(chart: Chart, logs: Floats, counts: Floats) -> Iterator[Finding]:
    """From some round on everybody's updates are of another size."""
    numbers, middles, values = [], [], []
    for number, rows in chart.cohorts:
        if np.isfinite(logs[rows]).any():
            numbers.append(number)
            middles.append(median(logs[rows]))
            values.append(median(counts[rows]))
    split = change(np.array(middles), LEAST_ROUNDS)
    if split is None or split.score < threshold(len(middles), RATE):
        return
    more = np.array([median(np.array(values[split.place :])) - median(np.array(values[: split.place]))])
    if abs(float(_unexplained(np.array([split.after - split.before]), more)[0])) < FACTOR:
        return
    yield write(
        RULE,
        Severity.INFO,
        f"updates took {size(math.exp(split.before))} until round {numbers[split.place]} and "
        f"{size(math.exp(split.after))} from then on",
        grade=Grade.SUSPECT,
        rounds=numbers[split.place :],
        evidence={"before": math.exp(split.before), "after": math.exp(split.after), "from_round": numbers[split.place]},
        next=[f"fedvitals show RUN --round {numbers[split.place]}"],
    )


RULE = WrittenRule(
    code="FL303",
    name="update size changed",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.BYTES}),
)
