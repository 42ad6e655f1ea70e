"""A cohort that is trained as one batch: `rnd.cohort(ids)`, `.step(...)`, `.submit(...)`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from fedvitals.capture.batch import PHASE_COLUMNS, CohortBatch, GradientRows
from fedvitals.capture.draft import bracket, kept_apart
from fedvitals.capture.harmless import harmless
from fedvitals.capture.resources import peak_rss_bytes
from fedvitals.capture.tensors import Row, gradient_statistics
from fedvitals.vocabulary import Failure, Outcome, spread

if TYPE_CHECKING:
    from fedvitals.capture.buffer import CohortBuffer
    from fedvitals.capture.recorder import Recorder


Whole = Sequence[int] | np.ndarray  # a whole number a client


class CohortSession:
    """Some clients of a round that share every step. Stacked tensors have the clients as their first axis."""

    def __init__(
        self,
        recorder: Recorder,
        buffer: CohortBuffer,
        round_number: int,
        ids: Sequence[str],
        attempts: Sequence[int],
        samples: Whole | None,
    ) -> None:
        self.recorder = recorder
        self.attempts = list(attempts)
        self._submitted = False
        self._buffer = buffer
        self.ids = list(ids)
        self._outcome: Any = ()  # of each client, or one for all, once they are submitted
        self._samples = samples.copy() if isinstance(samples, np.ndarray) else _listed(samples)
        self._round = round_number
        self._start_ns = recorder.now()
        self._step = 0
        self._losses: list[Any] = []
        self._sampled: list[GradientRows] = []

    @harmless
    def step(self, stacked_gradients: Mapping[str, Any] | Row | None, losses: Any = None) -> None:
        """Tell of a step all clients took: their gradients (looked at when sampled) and their losses [clients]."""
        number = self._step
        self._step += 1
        if losses is not None:
            self._losses.append(kept_apart(losses))
        if stacked_gradients is not None and self.recorder.governor.wants(number):
            rows = self._buffer.reference.flattener.stacked(stacked_gradients)
            self._keep_sample(number, self._statistics(rows), None)

    @harmless
    def sampled(self, step: int, rows: Row, slots: Sequence[int] | None = None) -> None:
        """Gradients of one step as rows [clients, size], for all clients or those in `slots`."""
        self._keep_sample(step, self._statistics(rows), slots)

    @harmless
    def sampled_norms(self, step: int, stats: np.ndarray, slots: Sequence[int] | None = None) -> None:
        """Statistics of one step that were taken already, [clients, layers, fields]."""
        self._keep_sample(step, stats, slots)

    def _statistics(self, rows: Row) -> np.ndarray:
        full = self.recorder.governor.whole_statistics
        return gradient_statistics(rows, self._buffer.reference.flattener.layout, full=full)

    def _keep_sample(self, step: int, stats: np.ndarray, slots: Sequence[int] | None) -> None:
        ids, attempts = self.ids, self.attempts
        if slots is not None and slots != range(len(ids)):
            ids, attempts = [ids[slot] for slot in slots], [attempts[slot] for slot in slots]
        self._sampled.append(GradientRows(ids, attempts, [step] * len(ids), None, stats))

    @harmless
    def submit(
        self,
        /,
        stacked_states: Mapping[str, Any] | Row | None = None,
        losses: Any = None,
        *,
        updates: Row | None = None,
        step_losses: Any = None,
        steps: Any = None,
        phases_s: Mapping[str, Any] | None = None,
        handed_over: bool = False,
        **columns: Any,
    ) -> None:
        """Hand over the trained models stacked, or their `updates` (differences) where these are at hand. Updates and
        losses that are `handed_over` are not copied: whoever says so never writes to them again.

        `columns` are further fields of Participation, one value for all or a list.
        """
        if self._submitted:
            raise ValueError("this cohort was submitted before; only what came first is recorded")
        self._submitted = True
        if step_losses is None and self._losses:
            step_losses = np.stack([np.asarray(_host(loss), np.float32) for loss in self._losses], axis=1)
        if step_losses is not None:
            step_losses, steps = self._of_steps(step_losses, steps, own=handed_over)
        values = self._common() | _phase_columns(phases_s or {}) | columns
        if "peak_memory_bytes" not in values:
            values["peak_memory_bytes"] = peak_rss_bytes()
        if losses is not None:
            values["loss"] = np.asarray(_host(losses), np.float64)
        if step_losses is None and steps is not None:  # told without their losses
            values["steps"] = np.asarray(_host(steps))
        if step_losses is None and self._sampled:
            values |= self._bad_steps()
        self._drop_misfits(values)
        self._outcome = values["outcome"]
        batch = CohortBatch(
            clients=self.ids,
            attempts=self.attempts,
            round=self._round,
            reference=self._buffer.reference,
            columns=values,
            step_losses=step_losses,
            steps=steps,
            sampled=self._sampled,
        )
        try:
            rows = self._updates(stacked_states) if updates is None else self._checked(updates)
            self._buffer.add_batch(batch, rows, borrowed=updates is not None and not handed_over)
        except ValueError as error:  # what is known beside the update is kept all the same
            failure = Failure(self.recorder.now(), "submit", "shape mismatch", str(error), self._round)
            self.recorder.emit([failure])
            self._buffer.keep(batch)

    def _of_steps(self, losses: Any, steps: Any, *, own: bool) -> tuple[np.ndarray | None, np.ndarray | None]:
        """Losses [clients, steps] as an array of the recorder's own, and how many each took; nothing of what is not of
        this cohort."""
        count = len(self.ids)
        try:
            losses = np.array(_host(losses), np.float32, copy=None if own else True)
            steps = np.full(count, losses.shape[1]) if steps is None else np.asarray(_host(steps), np.int64)
            if losses.ndim == 2 and len(losses) == count == len(steps):
                return losses, steps
            found = f"step_losses of {losses.shape} and steps of {np.shape(steps)}"
        except (TypeError, ValueError, IndexError) as error:
            found = f"step_losses: {error}"
        self.recorder.trouble("CohortSession.submit", ValueError(f"{found}; right is [{count} clients, steps]"))
        return None, None

    @property
    def outcomes(self) -> list[str]:
        """One for each client, once they are submitted."""
        return list(spread(self._outcome, len(self.ids)))

    def _bad_steps(self) -> dict[str, Any]:
        """Where no losses were told, sampled gradients say between which steps a client went bad."""
        seen: dict[str, tuple[list[int], list[Any]]] = {name: ([], []) for name in self.ids}
        for rows in self._sampled:
            for name, step, stats in zip(rows.clients, rows.steps, rows.stats, strict=True):
                seen[name][0].append(step)
                seen[name][1].append(stats[:, 0])
        found = [bracket(steps, np.array(norms)) for steps, norms in seen.values()]
        return {"good_step": [good for good, _ in found], "bad_step": [bad for _, bad in found]}

    def _drop_misfits(self, values: dict[str, Any]) -> None:
        """A column of another length than the cohort would cut it short."""
        for name, column in values.items():
            if isinstance(column, _COLUMNS) and not _is_for(column, len(self.ids)):
                values[name] = None
                found = f"{name} has {np.size(column)} values for {len(self.ids)} clients"
                self.recorder.trouble("CohortSession.submit", ValueError(found))

    def _updates(self, stacked_states: Mapping[str, Any] | Row | None) -> Row:
        if stacked_states is None:
            raise ValueError("submit() needs the stacked states or the updates")
        reference = self._buffer.reference
        return self._checked(reference.flattener.stacked(stacked_states)) - reference.row

    def _checked(self, rows: Row) -> Row:
        if rows.shape != (len(self.ids), self._buffer.reference.flattener.size):
            expected = (len(self.ids), self._buffer.reference.flattener.size)
            raise ValueError(f"the cohort's updates have shape {tuple(rows.shape)}, expected {expected}")
        return rows

    def _common(self) -> dict[str, Any]:
        reference = self._buffer.reference
        return {
            "applied_version": reference.version + 1,
            "staleness": 0,
            "outcome": Outcome.USED.value,
            "samples": self._samples,
            "start_ns": self._start_ns,
            "end_ns": self.recorder.now(),
            "raw_bytes_up": reference.raw_bytes,
            "raw_bytes_down": reference.raw_bytes,
            "attributed": 1,
        }


def _listed(values: Any) -> Any:
    """What may be gone through only once, or changed later, as a list; a number for all as it is."""
    return values if values is None or isinstance(values, int | float | range) else list(values)


_COLUMNS = (np.ndarray, list, tuple, range)


def _is_for(column: Any, clients: int) -> bool:
    return len(column) == clients if not isinstance(column, np.ndarray) else column.shape[:1] == (clients,)


def _phase_columns(phases_s: Mapping[str, Any]) -> dict[str, Any]:
    return {PHASE_COLUMNS.get(phase, "other_s"): value for phase, value in phases_s.items()}


def _host(values: Any) -> Any:
    return values.detach().cpu().numpy() if hasattr(values, "detach") else values
