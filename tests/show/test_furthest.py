"""Who lies furthest from the others: the right client, beside the range of the rest."""

from __future__ import annotations

import math

from recorded import participation

from fedvitals.show.furthest import furthest, furthest_table
from fedvitals.vocabulary import Participation


def _federation() -> list[Participation]:
    clients = [participation(str(index), cosine=0.5 + index / 100, train_s=0.1, first_loss=1.0) for index in range(5)]
    return [*clients, participation("bad", cosine=-0.9, train_s=0.1, first_loss=math.nan)]


def test_each_measure_names_one_client_and_the_range_of_the_rest() -> None:
    """The lowest cosine and a NaN loss stand out; the others' range leaves the one out."""
    found = {one.measure.field: one for one in furthest(_federation())}
    assert found["cosine"].client == "bad"
    assert (found["cosine"].others_low, found["cosine"].others_high) == (0.5, 0.54)
    assert found["first_loss"].client == "bad"
    assert (found["first_loss"].others_low, found["first_loss"].others_high) == (1.0, 1.0)


def test_a_measure_nobody_has_is_left_out() -> None:
    """Without at least three clients that have a number there is nothing to compare."""
    rows = [participation(str(index), cosine=None) for index in range(5)]
    assert "cosine" not in {one.measure.field for one in furthest(rows)}
    assert furthest(rows[:2]) == []


def test_the_table_says_it_in_words() -> None:
    """A row a measure: who, how much, and how the others are."""
    table = furthest_table(furthest(_federation()))
    assert table.rows[0] == ("lowest cosine to the others", "bad", "-0.90", "0.50 to 0.54")
