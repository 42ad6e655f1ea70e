"""`fedvitals bench faults`: plan, play what is missing, sum up, and write the page."""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from fedvitals.bench.faults.cells import Cell
from fedvitals.bench.faults.design import planned
from fedvitals.bench.faults.design import quick as quick_cells
from fedvitals.bench.faults.existing import check_tuning, omitted
from fedvitals.bench.faults.judging import Line
from fedvitals.bench.faults.page import PAGE, left_out
from fedvitals.bench.faults.page import write as written
from fedvitals.bench.faults.playing import play
from fedvitals.bench.faults.problems import FOLDER_VARIABLE
from fedvitals.bench.faults.results import Results, rules_version
from fedvitals.bench.faults.summary import summary
from fedvitals.bench.table import Row
from fedvitals.errors import FedvitalsError

FINAL, TUNING = Path(".bench/faults.jsonl"), Path(".bench/faults-tuning.jsonl")
MINUTES, QUICK_MINUTES = 240.0, 2.0
WORKERS = 2
TELL_EVERY_S = 30.0


def run(
    quick: bool = False,
    minutes: float | None = None,
    data: str | None = None,
    tuning: bool = False,
    results: str | None = None,
    redo: bool = False,
    write: str | None = None,
) -> list[Row]:
    """Rows of what is known after so many minutes. `tuning` keeps to what rules may be developed on; `quick` is a slice
    of two minutes that keeps nothing unless `results` names a file; `write` makes the page in that folder, and keeps
    what it is made of beside it."""
    if tuning and write:
        raise FedvitalsError("--write makes the final page, and --tuning measures on what rules were developed on")
    if data is not None:
        if not Path(data).is_dir():
            raise FedvitalsError(f"--data {data}: there is no such folder")
        os.environ[FOLDER_VARIABLE] = str(Path(data).resolve())  # the worker processes look there too
    cells = _cells(quick, tuning)
    limit = minutes if minutes is not None else QUICK_MINUTES if quick else MINUTES
    with tempfile.TemporaryDirectory() as nowhere:
        final = Path(write) / PAGE.with_suffix(".jsonl") if write is not None else FINAL
        kept = Path(nowhere) / "faults.jsonl" if quick else TUNING if tuning else final
        found = Results(Path(results) if results is not None else kept)
        version = rules_version()
        _go_on(found, cells, version, limit, redo=redo)
        lines = found.of(cells)
    _tell(lines, cells, version, quick=quick)
    if write is not None:
        _write(Path(write), lines, cells, found.newest)
    return summary(lines)


def _cells(quick: bool, tuning: bool) -> Sequence[Cell]:
    cells = quick_cells() if quick else planned(tuning=tuning)
    for cell in cells if tuning else ():
        check_tuning(cell)
    return cells


def _go_on(results: Results, cells: Sequence[Cell], version: str, minutes: float, *, redo: bool) -> None:
    missing = results.missing(cells, version, redo=redo)
    began = told = time.monotonic()
    if minutes <= 0 or not missing:
        return
    for done, line in enumerate(play(missing, version, workers=WORKERS, until=began + 60 * minutes), start=1):
        if isinstance(line, Line):
            results.add(line)
        else:
            _say(f"broke: {line}")
        if time.monotonic() - told > TELL_EVERY_S:
            told = time.monotonic()
            _say(f"{done} of {len(missing)} cells in {(told - began) / 60:.0f} min")


def _tell(lines: Sequence[Line], cells: Sequence[Cell], version: str, *, quick: bool) -> None:
    stale = sum(line.version != version for line in lines)
    if stale:
        _say(f"{stale} of {len(lines)} results were found by other rules than these; --redo plays them again")
    for words in left_out(lines, cells, {} if quick else omitted()):
        _say(f"left out: {words}")


def _write(folder: Path, lines: Sequence[Line], cells: Sequence[Cell], newest: str) -> None:
    if not lines:
        raise FedvitalsError("there are no results to write: run the bench first, or name its file with --results")
    for path in written(folder, lines, cells, omitted(), newest):
        _say(f"written: {path}")


def _say(words: str) -> None:
    print(words, file=sys.stderr, flush=True)
