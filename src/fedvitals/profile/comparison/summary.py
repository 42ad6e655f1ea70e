"""One run as the numbers that are compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedvitals.profile.profile import Profile
from fedvitals.store.protocol import RunReader
from fedvitals.store.table import Floats
from fedvitals.vocabulary import Finding, Run

SEED = "seed"


@dataclass(frozen=True, slots=True, eq=False)
class Summary:
    """One run. `rounds_*` have a number a round."""

    run: Run
    config: Mapping[str, Any]  # flat: "train.lr" -> 0.1
    wall_s: float
    rounds_s: Floats
    rounds_bytes_up: Floats
    rounds_bytes_down: Floats
    rounds_memory: Floats  # peak of the process at the end of each
    accuracies: Floats  # of the global model, an evaluation each
    losses: Floats
    peak_memory: float | None
    findings: tuple[Finding, ...]
    phases_s: Mapping[str, float]

    @property
    def group(self) -> tuple[tuple[str, str], ...]:
        """Runs with the same configuration but for the seed are one group; a run without any is alone."""
        if not self.config:
            return (("run", self.run.id),)
        return tuple(sorted((key, repr(value)) for key, value in self.config.items() if key not in (SEED, "name")))


def summary_of(profile: Profile, reader: RunReader, findings: tuple[Finding, ...]) -> Summary:
    """What is compared of this run."""
    rounds, judged = profile.rounds, profile.evaluations
    samples = [one for one in reader.resources() if one.device is None]
    times = np.array([one.at_ns for one in samples], dtype=np.float64)
    held = np.array([one.rss_bytes for one in samples], dtype=np.float64)
    return Summary(
        run=profile.run,
        config=flat(profile.run.config),
        wall_s=profile.wall_s,
        rounds_s=np.array([one.wall_s for one in rounds]),
        rounds_bytes_up=_numbers(one.bytes_up for one in rounds),
        rounds_bytes_down=_numbers(one.bytes_down for one in rounds),
        rounds_memory=np.array([_memory(times, held, (one.start_s + one.wall_s) * 1e9) for one in rounds]),
        accuracies=_numbers(one.accuracy for one in judged),
        losses=_numbers(one.loss for one in judged),
        peak_memory=float(max(one.peak_rss_bytes for one in samples)) if samples else None,
        findings=findings,
        phases_s=profile.breakdown_s,
    )


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables as dotted keys."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        if isinstance(value, Mapping) and value:
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def _numbers(values: Any) -> Floats:
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _memory(times: Floats, held: Floats, until_ns: float) -> float:
    """What the process held when last looked at, before this instant."""
    place = int(np.searchsorted(times, until_ns, side="right")) - 1
    return float(held[place]) if place >= 0 else np.nan
