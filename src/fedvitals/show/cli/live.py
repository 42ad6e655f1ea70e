"""How a training looks while it runs: a moving line at a terminal, plain lines in a pipe. All of it goes to stderr."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from fedvitals.show.cli.terminal import say, talk
from fedvitals.show.words import fixed, plural, safe, seconds, whole
from fedvitals.train.progress import NoProgress, Progress

if TYPE_CHECKING:
    from rich.progress import Progress as Bar

    from fedvitals.train.job import Job
    from fedvitals.train.result import Result

MOST_LINES = 30


@contextmanager
def progress(*, quiet: bool = False) -> Iterator[Progress]:
    """The progress that fits where stderr goes. Leaves the terminal as it was, whatever happens inside."""
    if quiet:
        yield NoProgress()
    elif sys.stderr.isatty():
        with _bar() as bar:
            yield BarProgress(bar)
    else:
        yield LineProgress()


class Pace:
    """Rounds done, clients a second and seconds left, from what has been told so far.

    Counted from the end of the first round: before it lies the loading of data, which says nothing about the rest.
    """

    def __init__(self) -> None:
        self.rounds = 0
        self.failed = 0
        self._clients = 0
        self._first_s = 0.0

    def told(self, of: int, clients: int, failed: int, elapsed_s: float) -> list[str]:
        """The words there are to say: none after the first round."""
        self.rounds += 1
        self.failed += failed
        if self.rounds == 1:
            self._first_s = elapsed_s
            return []
        self._clients += clients
        passed_s = elapsed_s - self._first_s
        if passed_s <= 0:
            return []
        words = [f"{self._clients / passed_s:,.0f} clients/s"]
        left_s = passed_s / (self.rounds - 1) * (of - self.rounds)
        return [*words, f"{seconds(left_s)} left"] if left_s > 0 else words


class LineProgress:
    """A line a round; of long trainings only some thirty, evenly spread."""

    def __init__(self) -> None:
        self._pace = Pace()

    def began(self, job: Job, clients: int, executor: str, why: str) -> None:
        say(began_line(job, clients, executor, why))

    def round_done(
        self,
        number: int,
        of: int,
        loss: float | None,
        accuracy: float | None,
        clients: int,
        failed: int,
        elapsed_s: float,
    ) -> None:
        pace = self._pace.told(of, clients, failed, elapsed_s)
        done = self._pace.rounds
        if done == of or done % -(-of // MOST_LINES) == 0:
            say("  ".join([f"{done}/{of} rounds", *_facts(loss, accuracy, self._pace.failed), *pace]))

    def ended(self, result: Result) -> None: ...


class BarProgress:
    """One line that moves: rounds, loss, accuracy, clients a second, time left."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._pace = Pace()
        self._task = bar.add_task("loading", total=None, facts="")

    def began(self, job: Job, clients: int, executor: str, why: str) -> None:
        from rich.text import Text

        self._bar.console.print(Text(began_line(job, clients, executor, why)))
        self._bar.update(self._task, description=f"0/{job.train.rounds} rounds", total=job.train.rounds)

    def round_done(
        self,
        number: int,
        of: int,
        loss: float | None,
        accuracy: float | None,
        clients: int,
        failed: int,
        elapsed_s: float,
    ) -> None:
        pace = self._pace.told(of, clients, failed, elapsed_s)
        done = self._pace.rounds
        facts = "  ".join([*_facts(loss, accuracy, self._pace.failed), *pace])
        self._bar.update(self._task, completed=done, total=of, description=f"{done}/{of} rounds", facts=facts)

    def ended(self, result: Result) -> None: ...


def _facts(loss: float | None, accuracy: float | None, failed: int) -> list[str]:
    words = [f"loss {fixed(loss)}", f"accuracy {fixed(accuracy)}"]
    return [*words, f"{whole(failed)} failed"] if failed else words


def began_line(job: Job, clients: int, executor: str, why: str) -> str:
    """`digits: 30 rounds, 5 of 20 clients each; executor vectorised (why)`."""
    asked = min(job.train.clients_per_round, clients)
    reason = f" ({safe(why)})" if why else ""
    return (
        f"{safe(job.name)}: {plural(job.train.rounds, 'round')}, {whole(asked)} of {plural(clients, 'client')} each; "
        f"executor {safe(executor)}{reason}"
    )


def _bar() -> Bar:
    from rich.progress import BarColumn, TextColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[facts]}", markup=False),
        console=talk(),
        refresh_per_second=8,
        transient=True,
    )
