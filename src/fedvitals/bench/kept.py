"""Results that a long bench keeps, a line of JSON each, so that it goes on where it was stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from fedvitals.errors import FedvitalsError

T = TypeVar("T")


def read(path: Path, made: Callable[[Mapping[str, Any]], T]) -> list[T]:
    """What there is; nothing without a file. A last line that was cut off is taken out of it; any other that `made`
    cannot take is refused."""
    texts = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
    found = []
    for number, text in enumerate(texts, start=1):
        try:
            found.append(made(_table(json.loads(text))))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            if number == len(texts):
                path.write_text("".join(f"{one}\n" for one in texts[:-1]), encoding="utf-8")
                break
            raise FedvitalsError(
                f"{path}, line {number} is not a result of this bench ({error}); move the file away or name another "
                "with --results"
            ) from error
    return found


def add(path: Path, said: Mapping[str, Any]) -> None:
    """One more, at once on disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(said, separators=(",", ":")) + "\n")


def _table(given: object) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"a {type(given).__name__} instead of a table")
    return given
