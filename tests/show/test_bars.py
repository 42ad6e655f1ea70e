"""A picture of bars is an SVG that stands alone."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import pytest

from fedvitals.show.bars import WIDTH, bar_chart

SVG = "{http://www.w3.org/2000/svg}"


def test_parts_stand_one_behind_the_other_and_add_up() -> None:
    """Each says what it is; the longest bar takes all of the width, and the sum stands behind each."""
    parts = {"torch <&>": [100.0, 100.0], "own": [300.0, 0.0]}
    root = ElementTree.fromstring(bar_chart("Memory", ["plain", "saved"], parts, "MB"))
    bars = {
        str(title.text): (float(one.get("x", "nan")), float(one.get("width", "nan")))
        for one in root.iter(f"{SVG}rect")
        if (title := one.find(f"{SVG}title")) is not None
    }
    assert list(bars) == [
        "plain, torch <&>: 100 MB",
        "plain, own: 300 MB",
        "saved, torch <&>: 100 MB",
        "saved, own: 0 MB",
    ]
    first, second = bars["plain, torch <&>: 100 MB"], bars["plain, own: 300 MB"]
    assert second[0] == pytest.approx(sum(first), abs=0.2)
    assert first[1] + second[1] == pytest.approx(WIDTH, abs=0.2)
    assert [one.text for one in root.iter(f"{SVG}text")][-1] == "100 MB"


def test_nothing_can_be_drawn() -> None:
    """Rows of zeros, and no rows at all."""
    for rows in (["plain"], []):
        assert ElementTree.fromstring(bar_chart("Memory", rows, {"own": [0.0] * len(rows)}, "MB")) is not None
