"""The bench of the store measures what it says."""

from __future__ import annotations

from fedvitals.bench import made_up, store


def test_the_sizes_hold_for_the_widest_updates() -> None:
    """Twenty layers take at most 2 KB a participation on disk, with 64 units and 32 losses too."""
    rows = store._writing("widest", *store.WIDEST, count=12_800, repeats=1)
    size = next(row for row in rows if row.measure == "on disk")
    assert size.met
    assert size.value > made_up.BUCKETS * 2 + made_up.LAYERS * 24  # the sketch and the statistics are in it


def test_reading_finds_what_it_measures() -> None:
    """Histories and rounds are read from a store that has them; the rows carry their goals."""
    rows = store._reading(5_000)
    assert [row.measure for row in rows] == ["one client's history", "one round"]
    assert all(row.goal == store.HISTORY_GOAL_MS and not row.at_least for row in rows)
