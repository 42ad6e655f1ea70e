"""`fedvitals demo`: a federated run in which three clients go wrong, recorded, shown and diagnosed."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from fedvitals.errors import StoreError
from fedvitals.show.cli.options import add_dir, next_command, settings_of

if TYPE_CHECKING:
    from fedvitals.settings import Settings
    from fedvitals.train.job import Job

name = "demo"
summary = "a federated run in which three clients go wrong, recorded, shown and diagnosed"
examples = ("fedvitals demo", "fedvitals demo --dir /tmp/runs")

JOB: dict[str, Any] = {
    "name": "demo",
    "seed": 7,
    "data": {"source": "digits", "clients": 20, "alpha": 3.0},
    "train": {"rounds": 20, "clients_per_round": 20, "epochs": 3, "batch_size": 16, "lr": 0.1},
    "faults": [
        {"kind": "sign-flip", "clients": [3], "from_round": 5},
        {"kind": "label-flip", "clients": [7], "from_round": 5},
        {"kind": "slow-compute", "clients": [12], "from_round": 5, "strength": 100.0},
    ],
}
INTRODUCTION = """\
20 clients learn to read handwritten digits together. From round 5 on, three of them go wrong.
Everything is recorded as it happens; afterwards, see who stands out, and what the doctor says.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--quiet", action="store_true", help="no progress on stderr")
    add_dir(parser)


def run(args: argparse.Namespace) -> int:
    from fedvitals.show.cli.live import progress
    from fedvitals.show.cli.terminal import say
    from fedvitals.train.job import Job

    settings = settings_of(args, mode="on")
    job = Job.from_dict(JOB, source="demo")
    if not args.quiet:
        say(INTRODUCTION)
    from fedvitals.train.engine import train

    with progress(quiet=args.quiet) as told:
        result = train(job, settings=settings, progress=told)
    if result.run_id is None:
        raise StoreError(f"nothing to show: {settings.dir} cannot be written; --dir names another folder")
    _show(settings, result.run_id)
    _tell(job, settings, result.run_id)
    return 0


def _show(settings: Settings, run_id: str) -> None:
    from fedvitals.show.cli.terminal import print_lines, print_table
    from fedvitals.show.furthest import furthest, furthest_table
    from fedvitals.show.overview import overview
    from fedvitals.show.tables import header_lines, rounds_table
    from fedvitals.store import open_store

    reader = open_store(settings).open(run_id)
    try:
        participations = reader.participations()
        print_lines(header_lines(overview(reader), len(participations)))
        print()
        print_table(rounds_table(reader.rounds(), reader.evaluations()))
        print()
        print_table(furthest_table(furthest(participations)))
    finally:
        reader.close()


def _tell(job: Job, settings: Settings, run_id: str) -> None:
    """The verdict beside what had been injected, where the run lies, and what to type next."""
    from fedvitals.show.cli.run import examined, following
    from fedvitals.show.cli.terminal import print_lines, print_texts
    from fedvitals.show.findings import styled_verdict
    from fedvitals.show.words import safe

    diagnosis = examined(settings, run_id)
    if diagnosis is not None:
        print()
        print_texts(styled_verdict(diagnosis))
    print(f"\nbottleneck: {_bottleneck(settings, run_id)}")
    print("\nwhat had been injected, from round 5 on")
    for fault in job.faults:
        print(f"  client {', '.join(fault.clients):<3} {fault.kind}")
    print(f"\nthe run lies in {safe(settings.store or f'{settings.dir}/{run_id}')}")
    found = diagnosis is not None and bool(diagnosis.findings)
    doctor = following(diagnosis, settings) if diagnosis and found else [next_command("doctor last", settings)]
    others = ("profile last", "report last -o report.html", "show last --client 3")
    print_lines([("next", command) for command in (*doctor, *(next_command(one, settings) for one in others))])


def _bottleneck(settings: Settings, run_id: str) -> str:
    from contextlib import closing

    from fedvitals.profile.profile import profile_of
    from fedvitals.show.profiles import verdict_line
    from fedvitals.store import open_store

    with closing(open_store(settings).open(run_id)) as reader:
        return verdict_line(profile_of(reader))
