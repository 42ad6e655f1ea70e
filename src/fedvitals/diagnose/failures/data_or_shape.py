"""Failures explained by data or shape.

Sees: failures whose words are those of tensors or rows that do not fit (a shape mismatch, a class out of bounds, an
empty batch), with the layers whose shapes differ from the run's model; clients whose updates have other layers than the
rest; and clients without any rows.

Matters: such a client has another model, another class list or no data. It fails every time until somebody changes
that; until then the model never learns from it.

Evidence: the message, the shapes at hand that differ from the model's, the client's rows against those of the others.

False alarms: messages are told by their words; an exception that merely speaks of a shape is counted here and not under
FL101. Clients that hold a personal head by design have other layers by design.

Do: compare the client's model and class list with the server's; leave clients without rows out of the selection.

Papers: none.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.failures.kinds import Kind, cause, of_clients
from fedvitals.diagnose.robust import median
from fedvitals.diagnose.rule import WrittenRule
from fedvitals.diagnose.words import listed
from fedvitals.diagnose.writing import see_client, times, write
from fedvitals.vocabulary import Failure, Finding, Layout, Severity

MOST_MESSAGE = 300
MOST_TRACEBACK = 4000
MOST_SHAPES = 6


def _look(chart: Chart) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[Failure]] = {}
    for one in of_clients(chart, Kind.DATA):
        groups.setdefault(cause(one), []).append(one)
    for causes in groups.values():
        yield _failures(chart, causes)
    yield from _other_layers(chart)
    yield from _no_rows(chart)


def _failures(chart: Chart, causes: list[Failure]) -> Finding:
    first, counts = causes[0], Counter(str(one.client) for one in causes)
    differing = _differing(first, chart.layouts)
    shapes = "; ".join(f"{name} is {own}, the model's {right}" for name, (own, right) in differing.items())
    return write(
        RULE,
        Severity.WARNING,
        f"{first.kind} {times(len(causes))} in {first.stage} at {_named(list(counts))}: {first.message[:MOST_MESSAGE]}"
        + (f" ({shapes})" if shapes else "")
        + _rows_of(chart, list(counts)),
        rounds=[one.round for one in causes if one.round is not None],
        clients=counts,
        evidence={
            "kind": first.kind,
            "stage": first.stage,
            "message": first.message,
            "count": len(causes),
            "per_client": dict(counts.most_common(50)),
            "differing": {name: list(both) for name, both in differing.items()},
            "at_hand": _at_hand(first),
            "traceback": (first.traceback or "")[-MOST_TRACEBACK:],
        },
        next=[see_client(next(iter(counts)))],
    )


def _at_hand(failure: Failure) -> dict[str, str]:
    """Shapes that were kept with a failure; a remote client's own word, so anything may stand there."""
    try:
        found = json.loads(failure.shapes or "{}")
    except (ValueError, RecursionError):
        return {}
    return {str(name): str(shape) for name, shape in found.items()} if isinstance(found, Mapping) else {}


def _differing(failure: Failure, layouts: tuple[Layout, ...]) -> dict[str, tuple[str, str]]:
    """Layers of the client's model that have another shape than the run's first model."""
    if not layouts:
        return {}
    right = {layer.name: str(tuple(layer.shape)) for layer in layouts[0].layers}
    found: dict[str, tuple[str, str]] = {}
    for name, shape in _at_hand(failure).items():
        layer, own = name.partition(".")[2] or name, shape.rpartition(" ")[0] or shape
        if layer in right and own != right[layer] and len(found) < MOST_SHAPES:
            found[layer] = (own, right[layer])
    return found


def _rows_of(chart: Chart, names: list[str]) -> str:
    """How many rows these clients have, where that stands out."""
    table = chart.participations
    mine = np.isin(table.client, [chart.clients.index(name) for name in names if name in chart.clients])
    own, others = median(table.samples[mine]), table.samples[~mine]
    others = others[np.isfinite(others)]
    if not np.isfinite(own) or not len(others) or float(others.min()) <= own <= float(others.max()):
        return ""
    return f"; it has {own:,.0f} rows, the others {float(others.min()):,.0f} to {float(others.max()):,.0f}"


def _other_layers(chart: Chart) -> Iterator[Finding]:
    table = chart.participations
    if chart.updates is None:
        return
    usual = chart.updates.layout
    for other in (layout for layout in chart.layouts if layout.id != usual.id):
        rows = np.flatnonzero(chart.update_layouts == other.id)
        if not len(rows):
            continue
        names = chart.names(np.unique(table.client[rows]))
        yield write(
            RULE,
            Severity.WARNING,
            f"{times(len(rows), 'update')} of {_named(list(names))} {_apart(other, usual)}",
            rounds=table.round[rows].tolist(),
            clients=names,
            evidence={"layers": [layer.name for layer in other.layers][:50], "updates": len(rows)},
            next=[see_client(names[0])],
        )


def _apart(other: Layout, usual: Layout) -> str:
    """In words, what is different about these layers."""
    own = {layer.name: tuple(layer.shape) for layer in other.layers}
    right = {layer.name: tuple(layer.shape) for layer in usual.layers}
    for name in right:
        if name not in own:
            return f"lack layer {name}, which the others have"
        if own[name] != right[name]:
            return f"have {name} of shape {own[name]}, the others {right[name]}"
    return f"have layers that the others lack: {listed([name for name in own if name not in right])}"


def _no_rows(chart: Chart) -> Iterator[Finding]:
    table = chart.participations
    rows = np.flatnonzero(table.samples == 0)
    if len(rows):
        names = chart.names(np.unique(table.client[rows]))
        yield write(
            RULE,
            Severity.WARNING,
            f"{_named(list(names))} took part {times(len(rows))} without any rows",
            rounds=table.round[rows].tolist(),
            clients=names,
            evidence={"samples": 0, "count": len(rows)},
            next=[see_client(names[0])],
        )


def _named(names: list[str]) -> str:
    return f"client {names[0]}" if len(names) == 1 else f"{len(names)} clients ({listed(names)})"


RULE = WrittenRule(
    code="FL107",
    name="failures explained by data or shape",
    page=__doc__ or "",
    look=_look,
    explains=frozenset({"FL101", "FL103", "FL105"}),
)
