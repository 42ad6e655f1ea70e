"""A picture as text: named rows, each a bar in parts that add up. An SVG file that needs nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape

from fedvitals.show.dots import COLOURS

ROW, BAR, LEFT, WIDTH, TOP, RIGHT, BOTTOM = 30, 18, 230, 470, 64, 60, 20


def bar_chart(title: str, rows: Sequence[str], parts: Mapping[str, Sequence[float]], unit: str) -> str:
    """An SVG. Each part has a value a row, at least 0; a row's sum stands behind its bar, in `unit`."""
    sums = [sum(values) for values in zip(*parts.values(), strict=True)]
    wide = WIDTH / max([*sums, 1e-12])
    height, width = TOP + ROW * len(rows) + BOTTOM, LEFT + WIDTH + RIGHT
    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" font-size="12" '
        f'font-family="system-ui, sans-serif"><title>{escape(title)}</title>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="12" y="20" font-size="14" font-weight="600">{escape(title)}</text>',
        *_legend(list(parts)),
    ]
    for place, row in enumerate(rows):
        values = {name: some[place] for name, some in parts.items()}
        drawn += _bar(row, values, TOP + ROW * place, wide, unit)
    return "\n".join([*drawn, "</svg>"]) + "\n"


def _legend(names: Sequence[str]) -> Iterator[str]:
    x = 18.0
    for number, name in enumerate(names):
        yield f'<rect x="{x - 6:g}" y="34" width="12" height="12" fill="{COLOURS[number % len(COLOURS)]}"/>'
        yield f'<text x="{x + 12:g}" y="44">{escape(name)}</text>'
        x += 36 + 6.6 * len(name)


def _bar(row: str, values: Mapping[str, float], top: float, wide: float, unit: str) -> Iterator[str]:
    x = float(LEFT)
    yield f'<text x="{LEFT - 10}" y="{top + 14:g}" text-anchor="end">{escape(row)}</text>'
    for number, (name, value) in enumerate(values.items()):
        told = f"<title>{escape(f'{row}, {name}: {value:.0f} {unit}')}</title>"
        colour = COLOURS[number % len(COLOURS)]
        yield f'<rect x="{x:.1f}" y="{top:g}" width="{value * wide:.1f}" height="{BAR}" fill="{colour}">{told}</rect>'
        x += value * wide
    yield f'<text x="{x + 6:.1f}" y="{top + 14:g}" fill="#555555">{sum(values.values()):.0f} {escape(unit)}</text>'
