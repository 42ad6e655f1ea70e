"""Trials of a job, for the commands that run many: each a run in the store, in a process of its own, so that its memory
is its own; and what has been run with the same configuration is not run again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from fedvitals.errors import FedvitalsError

if TYPE_CHECKING:
    from fedvitals.profile.pareto import Trial
    from fedvitals.settings import Settings
    from fedvitals.train.job import Job


@dataclass(frozen=True, slots=True)
class Measured:
    """What one run took, and how it learnt."""

    run_id: str
    wall_s: float
    round_s: float | None
    memory_bytes: float | None
    wire_bytes: float | None  # both ways
    curve: tuple[tuple[int, float], ...]  # rounds that were done, and the accuracy after them

    @property
    def accuracy(self) -> float | None:
        return self.curve[-1][1] if self.curve else None

    @property
    def numbers(self) -> tuple[float, float | None, float | None, float | None, float | None]:
        """In the order of `Trial`."""
        return self.wall_s, self.round_s, self.memory_bytes, self.wire_bytes, self.accuracy


def already(job: Job, settings: Settings) -> str | None:
    """A finished run of just this job."""
    from fedvitals.store import open_store
    from fedvitals.store.plain import plain
    from fedvitals.vocabulary import Status

    config = plain(job.to_dict())
    for one in open_store(settings).runs():
        if one.status == Status.FINISHED and one.config == config:
            return one.id
    return None


def run_apart(job: Job, settings: Settings, within_s: float | None = None) -> str:
    """Run it in a process of its own; gives the run's id. TimeoutError where that takes too long: it is ended."""
    import json
    import subprocess
    import sys
    import tempfile

    if settings.mode == "off":
        raise FedvitalsError('mode = "off" records nothing, and trials are compared by their records; right is "on"')
    with tempfile.NamedTemporaryFile("w", suffix=".json", encoding="utf-8") as file:
        json.dump(job.to_dict(), file)
        file.flush()
        words = [sys.executable, "-m", "fedvitals.show.cli.trial", file.name, "--dir", settings.dir]
        try:
            done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=within_s)  # noqa: S603  # our own words
        except subprocess.TimeoutExpired as error:
            raise TimeoutError(f"not done within {error.timeout:.0f} s") from None
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise FedvitalsError(f"ended with code {done.returncode}: {last}")
    return done.stdout.strip()


def measured(run_id: str, settings: Settings) -> Measured:
    """From the records of a run."""
    from fedvitals.profile.comparison.summary import summary_of
    from fedvitals.profile.profile import profile_of
    from fedvitals.store import open_store

    with closing(open_store(settings).open(run_id)) as reader:
        profile = profile_of(reader)
        summary = summary_of(profile, reader, ())
    rounds = sorted(one.wall_s for one in profile.rounds)
    ways = [profile.communication.up.wire_bytes, profile.communication.down.wire_bytes]
    sent = [one for one in ways if one is not None]
    return Measured(
        run_id=run_id,
        wall_s=profile.wall_s,
        round_s=rounds[len(rounds) // 2] if rounds else None,
        memory_bytes=summary.peak_memory,
        wire_bytes=sum(sent) if sent else None,
        curve=tuple((one.round + 1, one.accuracy) for one in profile.evaluations if one.accuracy is not None),
    )


def write_picture(path: Path, title: str, trials: Sequence[Trial]) -> None:
    """The trials as points; says where."""
    from fedvitals.show.cli.terminal import say
    from fedvitals.show.sweeps import sweep_figure
    from fedvitals.show.words import safe

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        sweep_figure(title, trials).write_html(path, include_plotlyjs=True)
    except OSError as error:
        raise FedvitalsError(f"--picture {path}: cannot be written: {error}") from error
    say(f"picture   {safe(path)}")
