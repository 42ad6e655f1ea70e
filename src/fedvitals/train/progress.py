"""Who is told how a training goes while it goes: the engine calls, a terminal or a notebook shows.

Calls come from the training's own thread, between rounds: an implementation must be quick and must not raise.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from fedvitals.train.job import Job
    from fedvitals.train.result import Result


@runtime_checkable
class Progress(Protocol):
    """Something that wants to know."""

    def began(self, job: Job, clients: int, executor: str, why: str) -> None:
        """The data is there: so many clients, trained by this executor for this reason."""

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
        """A round ended. Loss and accuracy are the global model's, None where it was not judged; `elapsed_s` counts
        from the start of the training."""

    def ended(self, result: Result) -> None:
        """The training is over; not called when it failed."""


class NoProgress:
    """Tells nobody."""

    def began(self, job: Job, clients: int, executor: str, why: str) -> None: ...

    def round_done(
        self,
        number: int,
        of: int,
        loss: float | None,
        accuracy: float | None,
        clients: int,
        failed: int,
        elapsed_s: float,
    ) -> None: ...

    def ended(self, result: Result) -> None: ...
