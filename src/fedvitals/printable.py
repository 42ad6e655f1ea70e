"""Text that strangers wrote -> text that is harmless to show. Part of the ground: whoever prints may import it."""

from __future__ import annotations

MOST_CHARACTERS = 200


def safe(text: object, most: int = MOST_CHARACTERS) -> str:
    """One printable line: control and formatting characters are spelled out, long text is cut."""
    words = str(text)
    cut = words[:most] if len(words) > most else words
    shown = cut if cut.isprintable() else "".join(map(_spelled, cut))
    return f"{shown}..." if len(words) > most else shown


def _spelled(one: str) -> str:
    return one if one.isprintable() else one.encode("unicode_escape").decode("ascii")
