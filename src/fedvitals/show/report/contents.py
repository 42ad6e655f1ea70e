"""What a report tells: read once from the run, then only shown."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from fedvitals.diagnose import Diagnosis, diagnose
from fedvitals.profile.memory import MemoryProfile, memory_profile
from fedvitals.profile.profile import Profile, profile_of
from fedvitals.profile.trying import MOST_TRIED, tried
from fedvitals.profile.whatif.changes.compress import OFFERED
from fedvitals.profile.whatif.prediction import Prediction
from fedvitals.profile.whatif.registry import what_if
from fedvitals.show import figures
from fedvitals.show.overview import Overview, overview
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Failure

if TYPE_CHECKING:
    from plotly.graph_objects import Figure


@dataclass(frozen=True, slots=True)
class Contents:
    """All of one page."""

    overview: Overview
    diagnosis: Diagnosis
    profile: Profile
    memory: MemoryProfile
    predictions: tuple[Prediction, ...]
    failures: tuple[Failure, ...]
    figures: dict[str, Figure]  # by the names that the sections know them under


def contents_of(reader: RunReader) -> Contents:
    """The run as it is now."""
    profile, memory = profile_of(reader), memory_profile(reader)
    return Contents(
        overview=overview(reader),
        diagnosis=diagnose(reader),
        profile=profile,
        memory=memory,
        predictions=what_if(profile, tried=tried(reader, [codec for codec, _ in OFFERED], MOST_TRIED)).predictions,
        failures=tuple(reader.failures()),
        figures=_figures(reader, profile, memory),
    )


def _figures(reader: RunReader, profile: Profile, memory: MemoryProfile) -> dict[str, Figure]:
    """Only of what there is: a run without clients has no heat map."""
    found: dict[str, Figure] = {}
    if profile.evaluations or profile.clients:
        found["learning"] = figures.learning(profile)
    if profile.rounds:
        found["breakdown"] = figures.breakdown(profile)
        longest = max(profile.rounds, key=lambda one: one.wall_s).number
        found["waterfall"] = figures.waterfall(profile, longest)
        found["path"] = figures.critical_path(profile)
        found["round path"] = figures.critical_path(profile, longest)
    if profile.clients and profile.rounds:
        found["seconds"] = figures.heat_map(profile)
        found["cosine"] = figures.heat_map(profile, "cosine")
        found["bytes"] = figures.bytes_moved(profile)
    if reader.layouts():
        found["gradients"] = figures.gradient_flow(reader)
    if len(memory.points) > 1 or memory.phases:
        found["memory"] = figures.memory(memory)
    return found
