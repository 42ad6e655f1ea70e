"""A picture as text: named rows, a dot for each series on a scale from 0 to 1. An SVG file that needs nothing else."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0b5cad", "#d1495b", "#8d6a00", "#3f7d20", "#6a4c93", "#555555")
SHAPES = ("circle", "square", "diamond", "triangle")
ROW, LEFT, WIDTH, TOP, RIGHT, BOTTOM = 22, 190, 520, 64, 20, 34
SIZE = 5.0
TICKS = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)


def dot_chart(title: str, rows: Sequence[str], series: Mapping[str, Sequence[float]], scale: str) -> str:
    """An SVG. Each series has a value a row; one that is NaN has no dot. `scale` says what the values are."""
    height = TOP + ROW * len(rows) + BOTTOM
    width = LEFT + WIDTH + RIGHT
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-size="12" '
        f'font-family="system-ui, sans-serif"><title>{escape(title)}</title>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="14" font-weight="600">{escape(title)}</text>',
        *_legend(list(series)),
        *_axes(rows, scale),
    ]
    for number, (name, values) in enumerate(series.items()):
        parts += _dots(name, rows, values, number)
    return "\n".join([*parts, "</svg>"]) + "\n"


def _legend(names: Sequence[str]) -> list[str]:
    parts, x = [], 18.0
    for number, name in enumerate(names):
        parts.append(_dot(x, 40.0, number, ""))
        parts.append(f'<text x="{x + 10:g}" y="44">{escape(name)}</text>')
        x += 34 + 7 * len(name)
    return parts


def _axes(rows: Sequence[str], scale: str) -> list[str]:
    bottom = TOP + ROW * len(rows)
    parts = []
    for tick in TICKS:
        x = _x(tick)
        parts.append(f'<line x1="{x:g}" y1="{TOP}" x2="{x:g}" y2="{bottom}" stroke="#dddddd"/>')
        parts.append(f'<text x="{x:g}" y="{bottom + 14}" text-anchor="middle" fill="#555555">{tick:g}</text>')
    for number, name in enumerate(rows):
        y = _y(number)
        parts.append(f'<text x="{LEFT - 12}" y="{y + 4:g}" text-anchor="end">{escape(name)}</text>')
        parts.append(f'<line x1="{LEFT}" y1="{y:g}" x2="{LEFT + WIDTH}" y2="{y:g}" stroke="#eeeeee"/>')
    parts.append(
        f'<text x="{LEFT + WIDTH / 2:g}" y="{bottom + 29}" text-anchor="middle" fill="#555555">{escape(scale)}</text>'
    )
    return parts


def _dots(name: str, rows: Sequence[str], values: Sequence[float], number: int) -> list[str]:
    found = []
    for place, (row, value) in enumerate(zip(rows, values, strict=True)):
        if math.isfinite(value):
            found.append(_dot(_x(value), _y(place), number, f"{name}, {row}: {value:.2f}"))
    return found


def _dot(x: float, y: float, number: int, words: str) -> str:
    """A mark that is told from the others by shape as well as by colour."""
    style = f'fill="{COLOURS[number % len(COLOURS)]}" fill-opacity="0.85"'
    told = f"<title>{escape(words)}</title>" if words else ""
    shape = SHAPES[number % len(SHAPES)]
    if shape == "circle":
        return f'<circle cx="{x:g}" cy="{y:g}" r="{SIZE:g}" {style}>{told}</circle>'
    corners = {
        "square": ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)),
        "diamond": ((0, -1.2), (1.2, 0), (0, 1.2), (-1.2, 0)),
        "triangle": ((0, -1.1), (1.1, 0.9), (-1.1, 0.9)),
    }[shape]
    points = " ".join(f"{x + SIZE * dx:g},{y + SIZE * dy:g}" for dx, dy in corners)
    return f'<polygon points="{points}" {style}>{told}</polygon>'


def _x(value: float) -> float:
    return LEFT + WIDTH * min(max(value, 0.0), 1.0)


def _y(row: int) -> float:
    return TOP + ROW * (row + 0.5)
