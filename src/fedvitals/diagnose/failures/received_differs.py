"""Clients received different models.

Sees: clients that trained from the same version of the global model and whose fingerprints of the received model
differ. With asynchronous training versions are compared, not rounds.

Matters: federated averaging means that all start from one model. A client that starts from another one (its own of the
last round, an older one, one that a codec or a cast broke) pulls the average elsewhere; when every client has its own,
nothing is federated at all, and the clients' accuracies climb all the same.

Evidence: how many clients had which model, and whether theirs is one of an earlier version.

False alarms: fingerprints are exact. Models that are meant to differ (personal layers, client-side batch statistics
kept on purpose) show here; so does a model that is changed between its receipt and `watch`.

Do: compare the fingerprint that a client logs with the round's. Where clients send other types than the server expects
(arrays instead of tensors), look for warnings about dropped weights.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.evidence.accusing import SCORED_CODES
from fedvitals.diagnose.rule import CannotSee, Sight, WrittenRule
from fedvitals.diagnose.words import listed, ranges
from fedvitals.diagnose.writing import see_client, times, write
from fedvitals.store.table import Bools, Ints
from fedvitals.vocabulary import Finding, Severity


def _look(chart: Chart) -> Iterator[Finding]:
    table = chart.participations
    known = table.received >= 0
    if not known.any():
        raise CannotSee("no fingerprint of a received model was recorded")
    usual = _usual(table.base_version, table.received, known)
    apart = np.flatnonzero(known & (usual >= 0) & (table.received != usual))
    if not len(apart):
        return
    alone = _nobody_agrees(table.base_version, table.received, known)
    yield _each_its_own(chart, alone) if alone.sum() > len(apart) / 2 else _some(chart, apart, usual)


def _usual(version: Ints, received: Ints, known: Bools) -> Ints:
    """For each row the model that most clients of its version received; -1 for who is alone with a version."""
    width = int(received.max()) + 1
    pairs, counts = np.unique(version[known] * width + received[known], return_counts=True)
    best: dict[int, tuple[int, int]] = {}
    heard: dict[int, int] = {}
    for one, model, count in zip((pairs // width).tolist(), (pairs % width).tolist(), counts.tolist(), strict=True):
        best[one] = max(best.get(one, (0, -1)), (count, model))
        heard[one] = heard.get(one, 0) + count
    values = np.array([best[one][1] if heard[one] > 1 else -1 for one in sorted(best)])
    places = np.searchsorted(np.array(sorted(best)), version)
    found: Ints = np.where(known, values[np.minimum(places, len(values) - 1)], -1)
    return found


def _nobody_agrees(version: Ints, received: Ints, known: Bools) -> Bools:
    """Rows of versions for which no two clients had the same model."""
    rows = np.flatnonzero(known)
    versions, place, heard = np.unique(version[rows], return_inverse=True, return_counts=True)
    width = int(received.max()) + 1
    different = np.bincount(np.unique(place * width + received[rows]) // width, minlength=len(versions))
    found = np.zeros(len(known), bool)
    found[rows] = ((different == heard) & (heard > 1))[place]
    return found


def _each_its_own(chart: Chart, alone: Bools) -> Finding:
    table, rows = chart.participations, np.flatnonzero(alone)
    names = chart.names(np.unique(table.client[rows]))
    return write(
        RULE,
        Severity.CRITICAL,
        f"no two clients received the same model in rounds {ranges(np.unique(table.round[rows]).tolist())} "
        f"({times(len(rows), 'participation')} of {len(names)} clients): nothing is shared between them",
        rounds=table.round[rows].tolist(),
        clients=names,
        evidence={"participations": len(rows), "models": len(np.unique(table.received[rows]))},
        next=["compare the model that a client logs on receipt with the server's; look for dropped weights in its log"],
    )


def _some(chart: Chart, apart: Ints, usual: Ints) -> Finding:
    table = chart.participations
    names = chart.names(np.unique(table.client[apart]))
    old = _from_earlier(table.base_version, table.received, usual, apart)
    agreeing = int(np.sum((table.received == usual) & np.isin(table.base_version, table.base_version[apart])))
    who = f"client {names[0]}" if len(names) == 1 else f"{len(names)} clients ({listed(names)})"
    return write(
        RULE,
        Severity.CRITICAL,
        f"{who} trained {times(len(apart))} on another model than the others of the round ({agreeing} agree)"
        + (
            f"; {times(old, 'time') if old < len(apart) else 'each time'} it was one of an earlier version"
            if old
            else ""
        ),
        rounds=table.round[apart].tolist(),
        clients=names,
        evidence={"participations": len(apart), "agreeing": agreeing, "of_earlier_version": old},
        next=[see_client(names[0])],
    )


def _from_earlier(version: Ints, received: Ints, usual: Ints, apart: Ints) -> int:
    """How many of them received what was usual for an earlier version."""
    first: dict[int, int] = {}
    for one, model in zip(version.tolist(), usual.tolist(), strict=True):
        if model >= 0:
            first[model] = min(first.get(model, one), one)
    return sum(first.get(int(received[row]), 1 << 62) < int(version[row]) for row in apart)


RULE = WrittenRule(
    code="FL108",
    name="clients received different models",
    page=__doc__ or "",
    look=_look,
    needs=frozenset({Sight.PARTICIPATIONS}),
    explains=SCORED_CODES | {"FL409", "FL412", "FL413", "FL414"},  # from another model, any training looks odd
)
