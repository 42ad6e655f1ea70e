"""Ids and names of runs: what they may look like, and which run a word means."""

from __future__ import annotations

import re
from collections.abc import Sequence

from fedvitals.errors import StoreError
from fedvitals.vocabulary import Run

LAST = "last"
MAX_LENGTH = 100
_PLAIN = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def check_name(name: object, what: str) -> None:
    """Refuse anything that could leave the folder, hide in it, or not be typed."""
    if not isinstance(name, str) or not _PLAIN.fullmatch(name) or ".." in name or len(name) > MAX_LENGTH:
        shown = repr(name) if len(repr(name)) <= 2 * MAX_LENGTH else repr(name)[: 2 * MAX_LENGTH] + "..."
        raise StoreError(
            f"{shown} cannot be the {what} of a run: use letters, digits, '.', '_' and '-', at most {MAX_LENGTH} of "
            "them, without a '.' or '-' at the start and without '..'"
        )
    if what == "id" and name == LAST:
        raise StoreError(f"{name!r} cannot be the id of a run: it means the newest one")


def find(word: str, runs: Sequence[Run], where: str) -> str:
    """The id of the run that is meant: by id, `last`, the newest with that name, or the start of an id.

    `runs` are newest first.
    """
    if not runs:
        raise StoreError(f"there are no runs in {where}: record one first, or name another folder with FEDVITALS_DIR")
    if word == LAST:
        return runs[0].id
    for run in runs:
        if run.id == word:
            return run.id
    for run in runs:
        if run.name == word:
            return run.id
    begun = [run.id for run in runs if word and run.id.startswith(word)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        raise StoreError(f"{word!r} could be any of {_listed(begun)} in {where}: give more of the id")
    raise StoreError(f"there is no run {word!r} in {where}; there are {_listed([run.id for run in runs])}")


def _listed(ids: Sequence[str], most: int = 8) -> str:
    more = f" and {len(ids) - most} more" if len(ids) > most else ""
    return ", ".join(ids[:most]) + more
