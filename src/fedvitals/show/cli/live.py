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

    from fedvitals.train.engine import Result
    from fedvitals.train.job import Job

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
    """Clients a second and seconds left, from what has been told so far."""

    def __init__(self) -> None:
        self.clients = 0

    def told(self, number: int, of: int, clients: int, elapsed_s: float) -> tuple[str, str]:
        self.clients += clients
        speed = f"{self.clients / elapsed_s:,.0f} clients/s" if elapsed_s > 0 else ""
        left = f"{seconds(elapsed_s / number * (of - number))} left" if 0 < number < of else ""
        return speed, left


class LineProgress:
    """A line a round; of long trainings only some thirty, evenly spread."""

    def __init__(self) -> None:
        self._pace = Pace()
        self._done = 0

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
        self._done += 1
        speed, left = self._pace.told(self._done, of, clients, elapsed_s)
        if of > MOST_LINES and self._done < of and self._done % -(-of // MOST_LINES):
            return
        words = [f"round {self._done}/{of}", f"loss {fixed(loss)}", f"accuracy {fixed(accuracy)}"]
        words += [f"{whole(failed)} failed"] if failed else []
        say("  ".join([*words, *(word for word in (speed, left) if word)]))

    def ended(self, result: Result) -> None: ...


class BarProgress:
    """One line that moves: rounds, loss, accuracy, clients a second, time left."""

    def __init__(self, bar: Bar) -> None:
        self._bar = bar
        self._pace = Pace()
        self._task = bar.add_task("setting up", total=None, facts="")
        self._done = 0
        self._failed = 0

    def began(self, job: Job, clients: int, executor: str, why: str) -> None:
        from rich.text import Text

        self._bar.console.print(Text(began_line(job, clients, executor, why)))
        self._bar.update(self._task, description=f"round 0/{job.train.rounds}", total=job.train.rounds)

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
        self._done += 1
        self._failed += failed
        speed, left = self._pace.told(self._done, of, clients, elapsed_s)
        words = [f"loss {fixed(loss)}", f"accuracy {fixed(accuracy)}", speed, left]
        words += [f"{self._failed} failed"] if self._failed else []
        facts = "  ".join(word for word in words if word)
        self._bar.update(
            self._task, completed=self._done, total=of, description=f"round {self._done}/{of}", facts=facts
        )

    def ended(self, result: Result) -> None: ...


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
