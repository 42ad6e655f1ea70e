"""Lines over time as a picture in text."""

from __future__ import annotations

import math
from xml.etree import ElementTree

from fedvitals.show.lines import Line, line_chart

SVG = "{http://www.w3.org/2000/svg}"


def test_lines_lie_where_their_values_do() -> None:
    """A point a value, higher ones higher up; what is not known has none; names are no markup."""
    nan = math.nan
    lines = {
        "<rising>": Line([0.0, 0.5, 1.0], [0.0, 0.4, 0.9], [0.1, 0.6, 1.0]),
        "late": Line([nan, 0.2, 0.2], [nan, 0.2, 0.2], [nan, 0.2, 0.2]),
    }
    drawn = ElementTree.fromstring(line_chart("a & b", [0.0, 1.0, 2.0], lines, "seconds", "accuracy", 0.7))  # our own
    rising, late = (
        [tuple(map(float, point.split(","))) for point in one.attrib["points"].split()]
        for one in drawn.iter(f"{SVG}polyline")
    )
    assert [x for x, _ in rising] == sorted(x for x, _ in rising)
    assert [y for _, y in rising] == sorted((y for _, y in rising), reverse=True)
    assert len(rising) == 3
    assert len(late) == 2
    assert late[0][1] == late[1][1]
    words = [one.text for one in drawn.iter(f"{SVG}text")]
    assert {"a & b", "<rising>", "late", "seconds", "accuracy"} <= set(words)
    assert sum("stroke-dasharray" in one.attrib for one in drawn.iter(f"{SVG}line")) == 1
