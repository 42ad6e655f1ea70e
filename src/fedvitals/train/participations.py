"""Participations as records: what every one has, in rounds and without them. What else there is comes as `columns`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from fedvitals.train.trained import Failed, Trained
from fedvitals.vocabulary import Outcome

if TYPE_CHECKING:
    from fedvitals.capture.nothing import NoRound
    from fedvitals.capture.rounds import RoundSession
    from fedvitals.train.engine import Training


def record(
    training: Training,
    rnd: RoundSession | NoRound,
    trained: Trained,
    updates: Tensor,
    *,
    up: Sequence[int],
    down: Sequence[int],
    columns: Mapping[str, Any],
) -> None:
    """Clients whose updates came; `updates` as they are after the wire, `up` and `down` in bytes."""
    job = training.job
    training.server.uplink.came(up)
    names, attempts = [work.name for work in trained.works], [work.attempt for work in trained.works]
    cohort = rnd.cohort(names, samples=trained.samples, attempts=attempts)
    for sample in trained.sampled:
        cohort.sampled_norms(sample.step, sample.stats, sample.slots)
    cohort.submit(
        updates=updates,
        handed_over=True,
        step_losses=trained.losses,
        steps=trained.steps,
        wire_bytes_up=_alike(up),
        wire_bytes_down=_alike(down),
        epochs=job.train.epochs,
        executor=training.executor.name,
        chunk=trained.chunk,
        slot=trained.slots,
        attributed=int(trained.attributed and job.execute.clock == "real"),
        peak_memory_bytes=trained.peak_memory_bytes,
        **columns,
    )


def _alike(values: Sequence[int]) -> int | list[int]:
    """One for all where they are the same."""
    return values[0] if values.count(values[0]) == len(values) else list(values)


def record_lost(
    training: Training,
    rnd: RoundSession | NoRound,
    failed: Failed,
    outcome: Outcome,
    *,
    down: int,
    columns: Mapping[str, Any],
) -> None:
    """A client of whom nothing comes."""
    rnd.failed(
        failed.work.name,
        stage=failed.stage,
        kind=failed.kind,
        message=failed.message,
        traceback=failed.traceback,
        attempt=failed.work.attempt,
        executor=training.executor.name,
        outcome=outcome,
        wire_bytes_down=down,
        **columns,
    )
