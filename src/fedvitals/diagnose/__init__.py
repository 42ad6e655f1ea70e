"""Records -> findings. Pure functions of a chart; one rule a file, files grouped in families.

`diagnose(reader)` reads a run and lets every rule look; `Charting` and `examine` are its two halves, for a run that is
looked at again and again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from fedvitals.diagnose.diagnosis import Diagnosis as Diagnosis
from fedvitals.diagnose.rule import CannotSee as CannotSee
from fedvitals.diagnose.rule import Rule as Rule
from fedvitals.diagnose.rule import Sight as Sight

if TYPE_CHECKING:
    from fedvitals.store.protocol import RunReader

__all__ = ["CannotSee", "Diagnosis", "Rule", "Sight", "diagnose"]


def diagnose(
    reader: RunReader, *, select: Sequence[str] = (), ignore: Sequence[str] = (), own: Sequence[Rule] = ()
) -> Diagnosis:
    """What is wrong with this run, as far as it can be seen now. `own` are rules of yours beside ours."""
    from fedvitals.diagnose.charting import read_chart
    from fedvitals.diagnose.diagnosis import examine
    from fedvitals.diagnose.registry import RULES, chosen

    return examine(read_chart(reader), chosen(select, ignore, (*RULES, *own)))
