"""A picture of dots is an SVG that stands alone."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ElementTree

from fedvitals.show.dots import dot_chart

SVG = "{http://www.w3.org/2000/svg}"


def _marks(root: ElementTree.Element) -> list[str]:
    titles = (one.find(f"{SVG}title") for one in root.iter() if one.tag in (f"{SVG}circle", f"{SVG}polygon"))
    return [title.text or "" for title in titles if title is not None]


def test_each_value_is_a_dot_that_says_what_it_is() -> None:
    """Values that are not there have none."""
    chart = dot_chart("Found", ["a", "b"], {"ours": [1.0, 0.5], "theirs": [math.nan, 0.25]}, "share")
    assert _marks(ElementTree.fromstring(chart)) == ["ours, a: 1.00", "ours, b: 0.50", "theirs, b: 0.25"]


def test_dots_stand_in_their_place() -> None:
    """A larger value further right, a later row further down."""
    root = ElementTree.fromstring(dot_chart("Found", ["a", "b"], {"ours": [0.25, 0.75]}, "share"))
    drawn = [one for one in root.iter(f"{SVG}circle") if one.find(f"{SVG}title") is not None]
    (low, high) = ((float(one.get("cx", "nan")), float(one.get("cy", "nan"))) for one in drawn)
    assert low[0] < high[0]
    assert low[1] < high[1]


def test_names_cannot_break_the_picture() -> None:
    """Whatever they hold, it is text, and nothing is fetched from elsewhere."""
    chart = dot_chart("<b>&", ['"><script>'], {"<&>": [0.5]}, "<x>")
    root = ElementTree.fromstring(chart)
    assert root.find(f".//{SVG}script") is None
    assert chart.count("http") == 1
