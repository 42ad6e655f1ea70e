"""A picture as text: lines over time, each with its spread. An SVG file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import NamedTuple

from fedvitals.show.dots import COLOURS

WIDTH, HEIGHT = 730, 420
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 62, 46
TICKS = 5


class Line(NamedTuple):
    """A value, its low and its high at each place; NaN where there is none."""

    values: Sequence[float]
    lows: Sequence[float]
    highs: Sequence[float]


class _Frame(NamedTuple):
    """Where values lie in the picture."""

    places: Sequence[float]
    most: float

    def x(self, place: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * place / max(self.places[-1], 1e-12)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (HEIGHT - TOP - BOTTOM) * value / self.most

    def path(self, values: Sequence[float]) -> list[str]:
        pairs = zip(self.places, values, strict=True)
        return [f"{self.x(place):.1f},{self.y(value):.1f}" for place, value in pairs if math.isfinite(value)]


def line_chart(
    title: str,
    places: Sequence[float],
    lines: Mapping[str, Line],
    across: str,
    up: str,
    mark: float | None = None,
    said: Mapping[float, str] | None = None,
) -> str:
    """An SVG. `places` begin at or above 0 and grow; `across` and `up` say what the axes are; `mark` is a value that
    all lines are held to; `said` has words for some places, instead of numbers at even ones."""
    known = [value for line in lines.values() for value in (*line.values, *line.highs) if math.isfinite(value)]
    frame = _Frame(places, max([*known, mark or 0.0], default=1.0) * 1.05)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" font-size="12" '
        f'font-family="system-ui, sans-serif"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="14" font-weight="600">{escape(title)}</text>',
        *_legend(list(lines)),
        *_axes(frame, across, up, said or _even(frame)),
    ]
    if mark is not None:
        y = f"{frame.y(mark):.1f}"
        parts.append(f'<line x1="{LEFT}" y1="{y}" x2="{WIDTH - RIGHT}" y2="{y}" stroke="#555" stroke-dasharray="4 4"/>')
    for number, line in enumerate(lines.values()):
        parts += _drawn(frame, line, COLOURS[number % len(COLOURS)])
    return "\n".join([*parts, "</svg>"]) + "\n"


def _drawn(frame: _Frame, line: Line, colour: str) -> Iterator[str]:
    yield f'<polygon points="{" ".join(_around(frame, line))}" fill="{colour}" fill-opacity="0.15"/>'
    yield f'<polyline points="{" ".join(frame.path(line.values))}" fill="none" stroke="{colour}" stroke-width="2"/>'


def _around(frame: _Frame, line: Line) -> list[str]:
    there = [place for place, low in enumerate(line.lows) if math.isfinite(low) and math.isfinite(line.highs[place])]
    forth = [f"{frame.x(frame.places[place]):.1f},{frame.y(line.highs[place]):.1f}" for place in there]
    back = [f"{frame.x(frame.places[place]):.1f},{frame.y(line.lows[place]):.1f}" for place in reversed(there)]
    return forth + back


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = 18.0
    for number, name in enumerate(names):
        colour = COLOURS[number % len(COLOURS)]
        yield f'<line x1="{x - 6:g}" y1="40" x2="{x + 8:g}" y2="40" stroke="{colour}" stroke-width="3"/>'
        yield f'<text x="{x + 14:g}" y="44">{escape(name)}</text>'
        x += 40 + 6.6 * len(name)


def _even(frame: _Frame) -> dict[float, str]:
    places = [frame.places[-1] * tick / TICKS for tick in range(TICKS + 1)]
    return {place: f"{place:.3g}" for place in places}


def _axes(frame: _Frame, across: str, up: str, said: Mapping[float, str]) -> Iterator[str]:
    base = HEIGHT - BOTTOM
    for place, words in said.items():
        x = f"{frame.x(place):.1f}"
        yield f'<text x="{x}" y="{base + 16}" text-anchor="middle" fill="#555555">{escape(words)}</text>'
    for tick in range(TICKS + 1):
        value = frame.most * tick / TICKS
        y = frame.y(value)
        yield f'<line x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}" stroke="#eeeeee"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555555">{value:.2g}</text>'
    middle = LEFT + (WIDTH - LEFT - RIGHT) / 2
    yield f'<text x="{middle:.0f}" y="{HEIGHT - 8}" text-anchor="middle" fill="#555555">{escape(across)}</text>'
    yield f'<text x="{LEFT}" y="{TOP - 6}" fill="#555555">{escape(up)}</text>'
