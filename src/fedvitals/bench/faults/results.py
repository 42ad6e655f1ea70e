"""The fault bench's results: a file of JSON lines, one a cell, so that a bench that was stopped can go on."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fedvitals.diagnose
from fedvitals.bench.faults.cells import Cell
from fedvitals.bench.faults.judging import Line
from fedvitals.errors import FedvitalsError


class Results:
    """What is known so far. A later line of a cell replaces an earlier one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines: dict[str, Line] = {}
        if path.is_file():
            self._read()

    def missing(self, cells: Sequence[Cell], version: str, *, redo: bool) -> list[Cell]:
        """Cells that are still to be played. Lines of other rules count as done, unless they are to be redone."""
        return [cell for cell in cells if not self._done(cell, version, redo)]

    def add(self, line: Line) -> None:
        """Keep a line, at once on disk."""
        self.lines[line.cell.key] = line
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line.to_dict()) + "\n")

    def of(self, cells: Sequence[Cell]) -> list[Line]:
        """The lines of these cells, in their order."""
        return [self.lines[cell.key] for cell in cells if cell.key in self.lines]

    def _done(self, cell: Cell, version: str, redo: bool) -> bool:
        line = self.lines.get(cell.key)
        return line is not None and (line.version == version or not redo)

    def _read(self) -> None:
        texts = self.path.read_text(encoding="utf-8").splitlines()
        for number, text in enumerate(texts, start=1):
            try:
                line = Line.from_dict(_table(json.loads(text)))
            except (ValueError, TypeError, KeyError, AttributeError) as error:
                if number == len(texts):
                    self.path.write_text("".join(f"{one}\n" for one in texts[:-1]), encoding="utf-8")
                    return  # cut off in the middle of the last line
                raise FedvitalsError(
                    f"{self.path}, line {number} is not a result of this bench ({error}); move the file away or name "
                    "another with --results"
                ) from error
            self.lines[line.cell.key] = line


def rules_version() -> str:
    """A short name for the rules as they are: of every file in diagnose, whatever it holds."""
    folder = Path(str(fedvitals.diagnose.__file__)).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]


def _table(given: Any) -> dict[str, Any]:
    if not isinstance(given, dict):
        raise ValueError(f"a {type(given).__name__} instead of a table")
    return given
