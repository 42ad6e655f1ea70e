"""Where the command line's words go: results to stdout, talk to stderr, and tables that fit the terminal.

Colour and cursor movement only where a person sits at a terminal that wants them (rich heeds NO_COLOR and TERM). Into a
pipe or a file go plain, aligned lines of any width, never cut.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from fedvitals.show.tables import Table

SCHEMA_VERSION = 1
MOST_ROWS = 40


def say(text: str) -> None:
    """Talk: a line to stderr."""
    print(text, file=sys.stderr, flush=True)


def print_json(document: Mapping[str, Any], *, one_line: bool = False) -> None:
    """A document for programs. JSON has no word for NaN or infinity: they become null."""
    whole = _finite({"schema_version": SCHEMA_VERSION, **document})
    print(json.dumps(whole, indent=None if one_line else 2, allow_nan=False), flush=one_line)


def print_lines(lines: Sequence[tuple[str, str]]) -> None:
    """A block of `word   what it is`; a word that was just said is not said again."""
    width = max(len(word) for word, _ in lines)
    said = None
    for word, rest in lines:
        print(f"{'' if word == said else word:<{width}}   {rest}")
        said = word


def print_table(table: Table, *, most: int | None = MOST_ROWS) -> None:
    """A table, at most its last `most` rows; says how many were left out."""
    out = stdout()
    with out.capture() as drawn:  # printed by us, so that a closed pipe is met in one place
        _draw(table, out, most)
    print(drawn.get(), end="")


def print_texts(texts: Iterable[Text]) -> None:
    """Lines of text, coloured where a person looks at them."""
    out = stdout()
    with out.capture() as drawn:
        for text in texts:
            out.print(text, soft_wrap=True)
    print(drawn.get(), end="", flush=True)


def text_width(most: int) -> int:
    """How wide a line of text may be: as the terminal is, up to `most`."""
    return min(stdout().width, most)


def _draw(table: Table, out: Console, most: int | None) -> None:
    from rich.table import Table as RichTable
    from rich.text import Text

    from fedvitals.show.tables import fitted

    table = fitted(table, out.width)
    hidden = 0 if most is None else max(0, len(table.rows) - most)
    drawn = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for column in table.columns:
        words = column in table.texts
        drawn.add_column(
            Text(column), justify="left" if words else "right", no_wrap=not words, overflow="fold" if words else "crop"
        )
    for row in table.rows[hidden:]:
        drawn.add_row(*(Text(cell) for cell in row))  # Text, not str: a cell is never read as markup
    if table.title:
        out.print(Text(table.title, style="bold cyan"))
    if hidden:
        out.print(Text(f"  ({hidden:,} earlier rows are not shown: --all)", style="dim"))
    out.print(drawn)


def stdout() -> Console:
    """Results. Not at a terminal: as wide as the widest line."""
    from rich.console import Console

    return Console(highlight=False, markup=False, width=None if sys.stdout.isatty() else 100_000)


def talk() -> Console:
    """Talk and progress."""
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False)


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value
