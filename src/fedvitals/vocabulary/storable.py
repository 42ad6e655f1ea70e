"""The ground: whatever a store takes."""

from __future__ import annotations

from fedvitals.vocabulary.blocks import Layout, ModelBlock, Participations, StepBlock, UpdateBlock
from fedvitals.vocabulary.records import (
    Blob,
    Evaluation,
    Failure,
    LogEntry,
    Participation,
    ResourceSample,
    Round,
    Run,
    Span,
)

Record = (
    Run
    | Layout
    | Round
    | Participation
    | Participations
    | UpdateBlock
    | ModelBlock
    | StepBlock
    | Evaluation
    | Span
    | ResourceSample
    | LogEntry
    | Failure
    | Blob
)
