"""`python -m fedvitals.bench.scorer --data FOLDER`: play the lessons, fit the scorers, calibrate them, write the file.

The same lessons give the same file. Lessons are kept in a folder, so the work can be cut off and taken up again.
Thresholds come from lessons of families that a scorer was not fitted on, so that the stated rate of false alarms is
that of data never seen; the scorers that are written are then fitted on all.
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from fedvitals.bench.faults.problems import FOLDER_VARIABLE
from fedvitals.bench.scorer import calibration, doctored
from fedvitals.bench.scorer.curriculum import SECOND_MIX, THIRD_MIX, WIDE_MIX, lesson
from fedvitals.bench.scorer.fitting import KINDS, alarms, names
from fedvitals.bench.scorer.kinds import ALARMS
from fedvitals.bench.scorer.leaving_out import watched_unseen
from fedvitals.bench.scorer.lessons import Learnt, all_learnt
from fedvitals.bench.scorer.report import by_shipped, told
from fedvitals.diagnose.evidence.course import FEATURES
from fedvitals.diagnose.evidence.forest import SCORER, Scorers, save

ACCUSE_RATE = 0.0075  # of runs without a fault, of all kinds and clocks together: exact rules need some of the 1% too
SUSPECT_RATE = 0.025  # and of the 3%
USED = 2_000  # further lessons on which rules and bars were set: measured is on what comes after them


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fedvitals.bench.scorer", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="folder of the real data sets")
    parser.add_argument("--lessons", type=Path, default=Path(".fedvitals-lessons"), help="where lessons are kept")
    parser.add_argument("--workers", type=int, default=2, help="processes that play lessons")
    parser.add_argument("--first", type=int, default=817, help="how many lessons of the first mix")
    parser.add_argument("--second", type=int, default=151, help="how many of the second")
    parser.add_argument("--third", type=int, default=708, help="how many of the third")
    parser.add_argument("--wide", type=int, default=6000, help="how many of many worlds")
    parser.add_argument("--write", type=Path, default=SCORER, help="the file to write")
    parser.add_argument("--unseen", type=int, help="write nothing: how the shipped one does in so many further lessons")
    parser.add_argument("--doctor", type=int, help="write nothing: what all rules say of so many lessons beyond those")
    args = parser.parse_args(words)
    logging.disable(logging.WARNING)
    os.environ[FOLDER_VARIABLE] = str(args.data)  # the third mix takes its rows as the fault bench does
    if args.doctor:
        first = WIDE_MIX + 2 * (args.wide + USED)
        print(doctored.table(list(doctored.all_seen(range(first, first + 2 * args.doctor, 2), args.workers))))
        return 0
    if args.unseen:
        further = range(WIDE_MIX + 2 * args.wide, WIDE_MIX + 2 * (args.wide + args.unseen), 2)
        print(told(*by_shipped(_played(further, args))))
        return 0
    began = time.perf_counter()
    numbers = [
        *range(0, 4 * args.first, 4),
        *range(SECOND_MIX, SECOND_MIX + 2 * args.second, 2),
        *range(THIRD_MIX, THIRD_MIX + 2 * args.third, 2),
        *range(WIDE_MIX, WIDE_MIX + 2 * args.wide, 2),
    ]
    lessons = _played(numbers, args)
    print(f"{len(lessons)} lessons, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    clocks = watched_unseen(lessons)
    limits = calibration.calibrated(lessons, clocks, accuse=ACCUSE_RATE, suspect=SUSPECT_RATE)
    print(
        told(lessons, [calibration.highest_clock(one, seen, limits) for one, seen in zip(lessons, clocks, strict=True)])
    )
    sound = sum(one.clean for one in lessons)
    about = {"lessons": len(lessons), "clean": sound, "accuse_rate": ACCUSE_RATE, "suspect_rate": SUSPECT_RATE}
    save(args.write, Scorers(tuple(ALARMS), KINDS, FEATURES, limits, alarms(lessons), names(lessons)), about)
    print(f"{args.write}: {args.write.stat().st_size:,} bytes, {time.perf_counter() - began:.0f} s", file=sys.stderr)
    return 0


def _played(numbers: Sequence[int], args: argparse.Namespace) -> list[Learnt]:
    """Lessons of which there is something to learn."""
    lessons = [lesson(number, args.data, args.lessons / "subsets") for number in numbers]
    return [one for one in all_learnt(lessons, args.lessons, args.workers) if one is not None and len(one.guilty)]


if __name__ == "__main__":
    sys.exit(main())
