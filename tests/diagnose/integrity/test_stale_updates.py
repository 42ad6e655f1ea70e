"""FL605 where updates change slowly, and where a client has one gradient for ever."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
from charted import found, trained

FULL_BATCH = {
    "model.kind": "logistic",
    "train.rounds": 18,
    "train.clients_per_round": 20,
    "train.batch_size": 4096,
    "train.epochs": 1,
}


def test_a_stale_update_is_found_where_all_updates_are_much_alike(tmp_path: Path) -> None:
    """One step a round with all rows: each update is nearly the last one, and still not equal to it."""
    chart = trained(tmp_path, FULL_BATCH, [{"kind": "stale-update", "clients": [3], "from_round": 12}])
    (one,) = found(chart, "FL605")
    assert one.clients == ("3",)


def test_one_gradient_for_ever_is_no_stale_update(tmp_path: Path) -> None:
    """A client whose updates differ by less than sketches can tell may well repeat itself to the last bit."""
    chart = trained(tmp_path, FULL_BATCH)
    assert chart.updates is not None
    assert chart.updates.sketches is not None
    sketches, stats = chart.updates.sketches.copy(), chart.updates.stats.copy()
    rows = chart.histories[3]
    sketches[rows] = sketches[rows[0]]
    stats[rows] = stats[rows[0]]
    where = np.argmax(np.abs(sketches[rows[0]].astype(np.float32)))
    sketches[rows[::2], where] = np.nextafter(sketches[rows[0], where], np.float16(0))
    updates = replace(chart.updates, sketches=sketches, stats=stats)
    assert found(replace(chart, updates=updates, _shared={}), "FL605") == ()
