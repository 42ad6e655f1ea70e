"""Children that carry out the cases in turn, and the table of what they measured.

Cases take turns, so that a noisy machine is noisy to all. Memory is what training takes beside what the process holds
anyway: torch alone is more than 200 MB, which nothing here changes; the process without torch, and as a whole, are told
beside it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fedvitals.bench.optimise.cases import DEEP_PLAIN, LOWER, NO_ROUNDS, PLAIN, SAME, SITES, jobs
from fedvitals.bench.optimise.child import Measured, measure
from fedvitals.bench.table import Row, spread

MB = 1e6
MOST_LOST = 0.005  # of accuracy, with half of the weights cut


def run(quick: bool = False, write: str | None = None) -> list[Row]:
    """`write` names the folder of documentation whose page and picture are made anew."""
    rows = measured(quick)
    if write is not None:
        from fedvitals.bench.optimise.page import write as write_page

        for path in write_page(Path(write), rows):
            print(f"written: {path}", file=sys.stderr)
    return rows


def measured(quick: bool = False) -> list[Row]:
    """Time, bytes, memory and accuracy of every case, and the goals that some are held to."""
    results: dict[str, list[Measured]] = {}
    cases = jobs(quick)
    for _ in range(1 if quick else 3):
        for name, job in cases.items():
            one = measure(job)
            if one.refused is None:
                results.setdefault(name, []).append(one)
            else:
                print(f"{name} is left out: {one.refused}", file=sys.stderr)
    rows = [row for name, some in results.items() for row in _told(name, some)]
    return rows + ([] if quick else _goals(results))


def _told(name: str, some: Sequence[Measured]) -> list[Row]:
    virtual = [Row(name, "time on the virtual clock", *spread([one.virtual_s for one in some]), "s")]
    return (virtual if some[0].virtual_s else []) + [
        Row(name, "time", *spread([one.seconds for one in some]), "s"),
        Row(name, "bytes up", *spread([one.bytes_up / MB for one in some]), "MB"),
        Row(name, "bytes down", *spread([one.bytes_down / MB for one in some]), "MB"),
        Row(name, "memory of training", *spread([one.taken_bytes / MB for one in some]), "MB"),
        Row(name, "memory without torch", *spread([one.own_bytes / MB for one in some]), "MB"),
        Row(name, "memory of the process", *spread([one.peak_bytes / MB for one in some]), "MB"),
        Row(name, "accuracy", *spread([one.accuracy for one in some]), "share"),
    ]


def _goals(results: Mapping[str, Sequence[Measured]]) -> list[Row]:
    rows = []
    for name, goal in LOWER.items():
        pairs = list(zip(results[name], results[DEEP_PLAIN], strict=True))
        saved = [1.0 - one.taken_bytes / plain.taken_bytes for one, plain in pairs]
        rows.append(Row(name, "memory of training saved", *spread(saved), "share", goal))
        own = [1.0 - one.own_bytes / plain.own_bytes for one, plain in pairs]
        rows.append(Row(name, "memory without torch saved", *spread(own), "share", goal))
        whole = [1.0 - one.peak_bytes / plain.peak_bytes for one, plain in pairs]
        rows.append(Row(name, "memory of the process saved", *spread(whole), "share", goal))
    if NO_ROUNDS in results:
        pairs = list(zip(results[NO_ROUNDS], results[SITES], strict=True))
        rows.append(
            Row(NO_ROUNDS, "times sooner", *spread([rounds.virtual_s / one.virtual_s for one, rounds in pairs]), "x")
        )
    for name, like in SAME.items():
        off = [abs(one.accuracy - plain.accuracy) for one, plain in zip(results[name], results[like], strict=True)]
        rows.append(Row(name, "accuracy, difference", *spread(off), "share", 0.0, at_least=False))
    pairs = list(zip(results["prune half"], results[PLAIN], strict=True))
    lost = [plain.accuracy - one.accuracy for one, plain in pairs]
    fewer = [(one.bytes_up + one.bytes_down) / (plain.bytes_up + plain.bytes_down) for one, plain in pairs]
    rows.append(Row("prune half", "accuracy lost", *spread(lost), "share", MOST_LOST, at_least=False))
    rows.append(Row("prune half", "bytes / all bytes", *spread(fewer), "times", 1.0, at_least=False))
    return rows
