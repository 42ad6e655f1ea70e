"""The fault bench's results: a file of JSON lines, one a cell, so that a bench that was stopped can go on."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

import fedvitals.diagnose
from fedvitals.bench import kept
from fedvitals.bench.faults.cells import Cell
from fedvitals.bench.faults.judging import Line


class Results:
    """What is known so far. A later line of a cell replaces an earlier one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        found = kept.read(path, lambda said: Line.from_dict(dict(said)))
        self.lines = {line.cell.key: line for line in found}
        self.newest = found[-1].version if found else ""  # the rules that judged last

    def missing(self, cells: Sequence[Cell], version: str, *, redo: bool) -> list[Cell]:
        """Cells that are still to be played. Lines of other rules count as done, unless they are to be redone."""
        return [cell for cell in cells if not self._done(cell, version, redo)]

    def add(self, line: Line) -> None:
        """Keep a line, at once on disk."""
        self.lines[line.cell.key], self.newest = line, line.version
        kept.add(self.path, line.to_dict())

    def of(self, cells: Sequence[Cell]) -> list[Line]:
        """The lines of these cells, in their order."""
        return [self.lines[cell.key] for cell in cells if cell.key in self.lines]

    def _done(self, cell: Cell, version: str, redo: bool) -> bool:
        line = self.lines.get(cell.key)
        return line is not None and (line.version == version or not redo)


def rules_version() -> str:
    """A short name for the rules as they are: of every file in diagnose, whatever it holds."""
    folder = Path(str(fedvitals.diagnose.__file__)).parent
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            digest.update(str(path.relative_to(folder)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()[:12]
