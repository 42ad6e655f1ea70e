"""Words to HTML. All that is not a tag of ours goes through `text`: whoever named a client wrote no HTML here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from fedvitals.show.tables import Table
from fedvitals.show.words import NOTHING, safe

MOST_TEXT = 2_000


def text(words: object, most: int = MOST_TEXT) -> str:
    """Harmless in an element and in a quoted attribute."""
    return escape(safe(words, most), quote=True)


def paragraph(words: str, kind: str = "") -> str:
    return f"<p{_kind(kind)}>{text(words)}</p>"


def facts(lines: Iterable[tuple[str, str]]) -> str:
    """A word and what it is, line by line."""
    rows = "".join(f"<div><dt>{text(word)}</dt><dd>{text(rest)}</dd></div>" for word, rest in lines)
    return f'<dl class="facts">{rows}</dl>'


def table(one: Table, *, shares: Sequence[float] = ()) -> str:
    """With a caption and headings. `shares` draws a bar in the last cell of each row instead of what stands there."""
    heads = "".join(f"<th scope=col{_aligned(one, column)}>{text(column)}</th>" for column in one.columns)
    rows = "".join(
        f"<tr>{''.join(_cell(one, place, word, shares, number) for place, word in enumerate(row))}</tr>"
        for number, row in enumerate(one.rows)
    )
    caption = f"<caption>{text(one.title)}</caption>" if one.title else ""
    head = f"<thead><tr>{heads}</tr></thead>"
    return f'<div class="scroll" tabindex=0><table>{caption}{head}<tbody>{rows}</tbody></table></div>'


def _cell(one: Table, place: int, word: str, shares: Sequence[float], row: int) -> str:
    if shares and place == len(one.columns) - 1:
        width = round(max(min(shares[row], 1.0), 0.0) * 100, 1)
        return f'<td class="bar"><svg aria-hidden=true><rect width="{width}%" height="100%"/></svg></td>'
    shown = "" if word == NOTHING else text(word)
    if place == 0:
        return f"<th scope=row{_aligned(one, one.columns[place])}>{shown}</th>"
    return f"<td{_aligned(one, one.columns[place])}>{shown}</td>"


def _aligned(one: Table, column: str) -> str:
    return "" if column in one.texts else ' class="number"'


def folded(summary: str, inside: str) -> str:
    """Closed until it is asked for."""
    return f"<details><summary>{text(summary)}</summary>{inside}</details>"


def section(title: str, name: str, *parts: str) -> str:
    """A heading and what stands below it; nothing where there is nothing."""
    inside = "".join(parts)
    return f'<section aria-labelledby="{name}"><h2 id="{name}">{text(title)}</h2>{inside}</section>' if inside else ""


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""
