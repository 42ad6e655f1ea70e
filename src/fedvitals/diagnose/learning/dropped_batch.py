"""Dropped last batch.

Sees: a client whose steps are those of whole batches only, floor(rows / batch) an epoch, where its rows leave a smaller
last batch and the others take ceil(rows / batch). The batch size comes from the job's configuration, or from the steps
that most participations took for their rows.

Matters: the rows of the dropped batch change from epoch to epoch where rows are shuffled; where they are not, the same
rows are never trained on. With few rows it is a large part of them.

Evidence: rows, batch size, steps taken and expected, share of the rows left out an epoch.

False alarms: an exact rule on counts. A last batch of a single row cannot be normalised over its rows: where the model
does that and all who have such a batch leave it out, it is not told. A client that stopped early after exactly that
many steps looks the same. When everybody drops the last batch it is a choice of the job: told once, as information.

Do: drop_last = False in the loader, or a batch size that divides the rows.

Papers: none.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.rule import CannotSee, WrittenRule
from fedvitals.diagnose.writing import short, times, write
from fedvitals.store.table import Bools, Floats
from fedvitals.vocabulary import Action, Finding, Grade, Severity

MOST_FIT = 0.5  # share of the participations that a batch size read off their steps must explain
MOST_SIZES = 4096  # different numbers of rows that are tried for it


def _look(chart: Chart) -> Iterator[Finding]:
    table = chart.participations
    passes = _steps_an_epoch(chart)
    known = np.isfinite(passes) & (table.samples > 0) & (table.outcome != "failed")
    if not known.any():
        raise CannotSee("no participation has its rows, steps and epochs counted")
    size = _configured(chart, passes, known) or _read_off(table.samples[known], passes[known])
    if size is None:
        raise CannotSee("the batch size is not in the run's config, and steps do not follow from rows for any one size")
    whole, full = np.floor(table.samples / size), np.ceil(table.samples / size)
    uneven = known & (whole < full) & (whole >= 1)
    dropped = uneven & (passes == whole)
    kept = uneven & (passes == full)
    single = table.samples % size == 1
    if _normalised(chart) and not (kept & single).any():
        dropped &= ~single
    if dropped.any() and not kept.any():
        yield _of_everybody(chart, dropped, size)
        return
    for client in np.unique(table.client[dropped]):
        mine = dropped & (table.client == client)
        yield _of_client(chart, int(client), mine, kept, size)


def _normalised(chart: Chart) -> bool:
    """Whether the model holds numbers that are not trained, as batch normalisation does."""
    return any(layer.trainable is False for layout in chart.layouts for layer in layout.layers)


def _steps_an_epoch(chart: Chart) -> Floats:
    table = chart.participations
    epochs = np.where(table.epochs > 0, table.epochs, _number(chart, "epochs") or np.nan)
    return np.where(table.steps > 0, table.steps, np.nan) / epochs


def _configured(chart: Chart, passes: Floats, known: Bools) -> int | None:
    """The rows of a step that the run's configuration names, if any participation agrees with it."""
    size = (_number(chart, "batch_size") or 0) * (_number(chart, "accumulate") or 1)
    if not size:
        return None
    samples = chart.participations.samples[known]
    fits = (passes[known] == np.ceil(samples / size)) | (passes[known] == np.floor(samples / size))
    return size if fits.mean() > MOST_FIT else None


def _number(chart: Chart, name: str) -> int | None:
    """A whole number of this name in the configuration, at the top or in its section `train`."""
    config: Any = chart.run.config
    train = config.get("train")
    for place in (train if isinstance(train, dict) else {}, config):
        value = place.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return None


def _read_off(samples: Floats, passes: Floats) -> int | None:
    """The batch size with which most participations' steps are ceil(rows / size): rows / steps <= size < rows /
    (steps - 1) for each. The size that most of these intervals hold; None when too few agree."""
    pairs, counts = np.unique(np.stack([samples, passes], axis=1), axis=0, return_counts=True)
    whole = pairs[:, 1] == np.rint(pairs[:, 1])
    pairs, counts = pairs[whole], counts[whole]
    if len(np.unique(pairs[:, 0])) < 2 or len(pairs) > MOST_SIZES:
        return None
    candidates = np.unique(np.ceil(pairs[:, 0] / pairs[:, 1]))
    fits = np.ceil(pairs[None, :, 0] / candidates[:, None]) == pairs[None, :, 1]
    votes = (fits * counts[None, :]).sum(axis=1)
    best = int(np.argmax(votes))
    several = bool((fits[best] & (pairs[:, 1] >= 2)).any())  # single steps say nothing about the size
    return int(candidates[best]) if votes[best] > MOST_FIT * counts.sum() and several else None


def _of_client(chart: Chart, client: int, mine: Bools, kept: Bools, size: int) -> Finding:
    table = chart.participations
    row = int(np.flatnonzero(mine)[0])
    rows, steps, epochs = table.samples[row], table.steps[row], table.steps[row] / _steps_an_epoch(chart)[row]
    left = rows % size
    others = len(np.unique(table.client[kept & (table.client != client)]))
    name = chart.clients[client]
    why = (
        f"client {name} has {times(int(rows), 'row')} and takes {times(int(steps), 'step')} of {size} in "
        f"{times(round(epochs), 'epoch')}; with its last, smaller batch of {left:.0f} it would be "
        f"{np.ceil(rows / size) * epochs:.0f}. {times(others, 'other client')} keep{'s' * (others == 1)} theirs"
    )
    return write(
        RULE,
        Severity.WARNING,
        why,
        grade=Grade.CERTAIN,
        rounds=table.round[mine],
        clients=(name,),
        evidence={
            "batch_size": size,
            "rows": int(rows),
            "steps": int(steps),
            "expected_steps": int(np.ceil(rows / size) * epochs),
            "left_out_ratio": short(left / rows),
            "others_that_keep": others,
        },
        next=(Action(f"drop_last = False in client {name}'s loader", safe=False),),
    )


def _of_everybody(chart: Chart, dropped: Bools, size: int) -> Finding:
    table = chart.participations
    share = float((table.samples[dropped] % size).sum() / table.samples[dropped].sum())
    count = len(np.unique(table.client[dropped]))
    return write(
        RULE,
        Severity.INFO,
        f"all {count} clients whose rows do not divide by the batch size {size} leave out their last batch: "
        f"{share:.0%} of "
        "their rows an epoch",
        grade=Grade.CERTAIN,
        rounds=table.round[dropped],
        evidence={"batch_size": size, "clients": count, "left_out_ratio": short(share)},
        next=(Action("drop_last = False in the clients' loaders, if it is not meant", safe=False),),
    )


RULE = WrittenRule(code="FL415", name="dropped last batch", page=__doc__ or "", look=_look)
