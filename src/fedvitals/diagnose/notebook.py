"""Findings as a piece of HTML, for a notebook. Whatever comes from a run is escaped."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from fedvitals.diagnose.words import told

if TYPE_CHECKING:
    from fedvitals.diagnose.diagnosis import Diagnosis


def as_html(diagnosis: Diagnosis) -> str:
    """The text of the diagnosis, as it stands."""
    return f"<pre>{escape(told(diagnosis))}</pre>"
