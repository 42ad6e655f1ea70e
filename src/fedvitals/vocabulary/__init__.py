"""The nouns of fedvitals: what every stage hands to the next.

Records are frozen and typed. Durations and instants are integers in nanoseconds (`_ns`) or floats in seconds (`_s`); an
instant counts from the run's start on the run's clock, `started_unix_ns` anchors it to the wall.
"""

from fedvitals.vocabulary.blocks import (
    STATISTICS,
    Layer,
    Layout,
    ModelBlock,
    Participations,
    Sketch,
    StepBlock,
    TensorStats,
    UpdateBlock,
    spread,
)
from fedvitals.vocabulary.findings import Action, Finding, Grade, Severity
from fedvitals.vocabulary.records import (
    CLIENT_PHASES,
    PHASES,
    Blob,
    Evaluation,
    Failure,
    JSONObject,
    Level,
    LogEntry,
    Outcome,
    Participation,
    ResourceSample,
    Round,
    Run,
    Span,
    Status,
)
from fedvitals.vocabulary.storable import Record

__all__ = [
    "PHASES",
    "CLIENT_PHASES",
    "JSONObject",
    "Status",
    "Outcome",
    "Level",
    "Run",
    "Round",
    "Participation",
    "Evaluation",
    "Span",
    "ResourceSample",
    "LogEntry",
    "Failure",
    "Blob",
    "STATISTICS",
    "Layer",
    "Layout",
    "UpdateBlock",
    "ModelBlock",
    "StepBlock",
    "TensorStats",
    "Sketch",
    "Participations",
    "spread",
    "Record",
    "Severity",
    "Grade",
    "Action",
    "Finding",
]
