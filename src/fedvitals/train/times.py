"""How long clients took: as measured, or on the virtual clock as their devices would have needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedvitals.faults.work import LocalWork
from fedvitals.train.clock import RealClock, VirtualClock
from fedvitals.train.reckoning import Reckoned, Reckoner
from fedvitals.train.trained import Failed, Trained

NOW = 1e-9  # seconds of silence that nobody notices


class RoundTimes:
    """The times of one round's clients, as columns of their participations."""

    def __init__(self, clock: RealClock | VirtualClock, origin_ns: int, reckoner: Reckoner) -> None:
        self._clock = clock
        self._origin_ns = origin_ns
        self._reckoner = reckoner
        self.virtual = isinstance(clock, VirtualClock)
        self._longest_s = 0.0

    def handed_out(self, works: Sequence[LocalWork]) -> Sequence[LocalWork]:
        """The plans as executors get them: on the virtual clock slowness is reckoned, not waited for."""
        if not self.virtual:
            return works
        return [
            replace(w, compute_factor=1.0, load_factor=1.0, link_factor=1.0, silent_s=min(w.silent_s, NOW))
            for w in works
        ]

    def early_end(self, work: LocalWork, down: int) -> Reckoned | None:
        """The end of a client that is lost before it has trained; only devices that are imitated are."""
        return self._reckoner.early_end(work, down) if self.virtual else None

    def finished(self, trained: Trained, sizes: Sequence[int], down: Sequence[int]) -> list[Reckoned]:
        """What clients that trained come to, `sizes` bytes up and `down` bytes down; nothing on the real clock."""
        if not self.virtual:
            return []
        facts = zip(trained.works, trained.steps.tolist(), trained.samples.tolist(), down, sizes, strict=True)
        return [self._reckoner.finished(*fact) for fact in facts]

    def failed(self, failed: Failed, down: int) -> Reckoned:
        """What a client that failed comes to; one that never answered is waited for."""
        if failed.kind == "timeout" and failed.work.silent_s:
            return Reckoned({"wait": failed.work.silent_s})
        return self._reckoner.failed(failed.work, failed.stage, down) if self.virtual else Reckoned({})

    def lost_s(self, failed: Failed, reckoned: Reckoned) -> float:
        """How long it took until that was known. What the machine took is nothing to a virtual clock."""
        return reckoned.total_s if self.virtual else reckoned.total_s or (failed.end_ns - failed.start_ns) / 1e9

    def pass_round(self) -> None:
        """Clients work side by side: on the virtual clock their part of a round takes as long as the slowest that it
        waits for."""
        if self.virtual:
            self._clock.sleep(self._longest_s)

    def end_ns(self, reckoned: Reckoned) -> int:
        """When it is over on the run's clock, counted as the clock counts."""
        return self._clock.now_ns() + round(reckoned.total_s * 1e9)

    def columns(self, trained: Trained, reckoned: Sequence[Reckoned]) -> dict[str, Any]:
        """Start, end and phases of clients that finished."""
        return self._virtual(reckoned) if self.virtual else self._measured(trained)

    def of_failed(self, failed: Failed, reckoned: Reckoned) -> dict[str, Any]:
        """The same of one that did not."""
        start_ns, end_ns = failed.start_ns, failed.end_ns
        if self.virtual:
            start_ns, end_ns = self._clock.now_ns(), self.end_ns(reckoned)
        return {
            "start_ns": start_ns - self._origin_ns,
            "end_ns": end_ns - self._origin_ns,
            "phases_s": reckoned.phases_s,
        }

    def wait_until(self, seconds: float) -> None:
        """The round waits so long at least, from its clients' start."""
        self._longest_s = max(self._longest_s, seconds)

    def _measured(self, trained: Trained) -> dict[str, Any]:
        phases_s: dict[str, Any] = dict(trained.phases_s)
        uploads = phases_s.pop("upload").tolist()
        if any(uploads):  # who has no slow link has timed no transfer
            phases_s["upload"] = [seconds or None for seconds in uploads]
        return {
            "start_ns": _since(self._origin_ns, trained.start_ns),
            "end_ns": _since(self._origin_ns, trained.end_ns),
            "phases_s": phases_s,
        }

    def _virtual(self, reckoned: Sequence[Reckoned]) -> dict[str, Any]:
        return {
            "start_ns": self._clock.now_ns() - self._origin_ns,
            "end_ns": [self.end_ns(one) - self._origin_ns for one in reckoned],
            "phases_s": {name: [one.phases_s[name] for one in reckoned] for name in reckoned[0].phases_s},
        }


def _since(origin_ns: int, instants_ns: Sequence[int]) -> int | list[int]:
    """One for all where they are the same, as they are in a batch."""
    first = instants_ns[0]
    if instants_ns.count(first) == len(instants_ns):
        return first - origin_ns
    return [ns - origin_ns for ns in instants_ns]
