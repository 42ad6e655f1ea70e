"""The engine's ways to choose clients: one file a way, made by the name that a job gives it."""

from fedvitals.train.selections.protocol import Report, Selection
from fedvitals.train.selections.registry import SELECTIONS, make
from fedvitals.train.selections.uniform import RandomSelection

__all__ = ["SELECTIONS", "RandomSelection", "Report", "Selection", "make"]
