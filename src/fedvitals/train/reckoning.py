"""What a participation comes to on the virtual clock: its phases, its retries, and whether it is ever finished."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from fedvitals.faults.work import LocalWork
from fedvitals.train.network import MOST_TRIES, Network, Transfer
from fedvitals.vocabulary import Outcome


class Broke(NamedTuple):
    """Why nothing arrived."""

    stage: str
    kind: str  # the word that the rules about failures know it by
    message: str
    outcome: Outcome


@dataclass(frozen=True, slots=True)
class Reckoned:
    """One participation, in seconds from its start."""

    phases_s: Mapping[str, float]
    retries: Mapping[str, int] = field(default_factory=dict)  # a phase, where a transfer was begun again
    broke: Broke | None = None

    @property
    def total_s(self) -> float:
        return sum(self.phases_s.values())


@dataclass(frozen=True, slots=True, eq=False)
class Reckoner:
    """Reckons participations of one job. `rows` says how many rows a planned client goes through an epoch."""

    network: Network
    epochs: int
    step_rows: int
    parameters: int
    rows: Callable[[LocalWork], int]

    def finished(self, work: LocalWork, steps: int, samples: int, down_bytes: int, up_bytes: int) -> Reckoned:
        """A client that trained; it broke where its update could not be sent."""
        download, upload = self.network.download(work, down_bytes), self.network.upload(work, up_bytes)
        phases = {"download": download.seconds, **self._computing(work, steps, samples), "upload": upload.seconds}
        broke = _given_up("upload") if upload.given_up else None
        return Reckoned(phases, _retries(download, upload), broke)

    def early_end(self, work: LocalWork, down_bytes: int) -> Reckoned | None:
        """A client whose update is lost before it is made: it need not be trained. None for all others."""
        if not self.network.imitated:
            return None
        download = self.network.download(work, down_bytes)
        if download.given_up:
            return Reckoned({"download": download.seconds}, _retries(download), _given_up("download"))
        share = self.network.leaves_after(work)
        if share is None:
            return None
        phases = {"download": download.seconds, **self._planned(work)}
        left = _cut(phases, share * sum(phases.values()))
        stage = list(left)[-1]
        message = f"went away after {sum(left.values()):.3g} s"
        return Reckoned(left, _retries(download), Broke(stage, "ConnectionResetError", message, Outcome.DROPPED))

    def has_model(self, work: LocalWork, down_bytes: int, within_s: float) -> bool:
        """Whether the download ends: before its client goes away, gives it up, or is told to stop after that time."""
        early = self.early_end(work, down_bytes)
        if early is not None and early.broke is not None and early.broke.stage == "download":
            return False
        return self.network.download(work, down_bytes).seconds <= within_s

    def until_trained_s(self, work: LocalWork, down_bytes: int) -> float:
        """When a client is done training, or raises."""
        if work.error is not None:
            return self.failed(work, "train", down_bytes).total_s
        return self.network.download(work, down_bytes).seconds + sum(self._planned(work).values())

    def expected_s(self, work: LocalWork, model_bytes: int) -> float:
        """How long a client takes with whom all goes well, and whose update is as large as the model."""
        return self.until_trained_s(work, model_bytes) + self.network.upload(work, model_bytes).seconds

    def failed(self, work: LocalWork, stage: str, down_bytes: int) -> Reckoned:
        """A client that raised: where training failed it had the model, where its message failed it had trained too.

        Without a network such clients have always taken no time.
        """
        if not self.network.imitated:
            return Reckoned({})
        download = self.network.download(work, down_bytes)
        phases = {"download": download.seconds} | (self._planned(work) if stage in ("encode", "decode") else {})
        return Reckoned(phases, _retries(download))

    def _planned(self, work: LocalWork) -> dict[str, float]:
        rows = self.rows(work)
        whole, rest = divmod(rows, self.step_rows)
        last = 0 if rest == 0 or (work.drop_last and whole > 0) else 1
        return self._computing(work, (whole + last) * self.epochs, rows)

    def _computing(self, work: LocalWork, steps: int, samples: int) -> dict[str, float]:
        batch_rows = float(samples) * self.epochs / max(steps, 1)
        alone = self.network.devices[work.client].train_s(steps, batch_rows, self.parameters)
        return {"load": (work.load_factor - 1.0) * alone, "train": alone * work.compute_factor}


def _given_up(phase: str) -> Broke:
    return Broke(phase, "ConnectionError", f"the {phase} broke off {MOST_TRIES} times and was given up", Outcome.FAILED)


def _retries(download: Transfer, upload: Transfer | None = None) -> dict[str, int]:
    counts = {"download": download.retries, "upload": upload.retries if upload else 0}
    return {phase: count for phase, count in counts.items() if count}


def _cut(phases: Mapping[str, float], at_s: float) -> dict[str, float]:
    """The phases until an instant: the last one in part, those after it not at all."""
    left: dict[str, float] = {}
    for phase, seconds in phases.items():
        left[phase] = min(seconds, at_s)
        at_s -= left[phase]
        if at_s <= 0.0:
            break
    return left
