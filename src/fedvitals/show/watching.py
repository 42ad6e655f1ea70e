"""A run that is going on, looked at again and again: what is new, what changed, what is gone.

Looking costs a part of a core that the training may want: at most two looks a second, and never more than a fiftieth
of the time. Once the run has ended there is one last look, at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from fedvitals.show.baseline import Fingerprint, fingerprint
from fedvitals.vocabulary import Finding, Severity

if TYPE_CHECKING:
    from fedvitals.diagnose import Diagnosis

LEAST_WAIT_S = 0.5
LOOK_SHARE = 50  # of so many parts of the time one is spent on looking


class Changes(NamedTuple):
    """What one look saw that the look before did not."""

    diagnosis: Diagnosis
    new: tuple[Finding, ...]
    changed: tuple[Finding, ...]  # another of the same code took the place of one that is gone
    gone: tuple[Finding, ...]
    first: bool = False
    last: bool = False

    def __bool__(self) -> bool:
        return bool(self.new or self.changed or self.gone)


def watch(
    look: Callable[[], Diagnosis],
    ended: Callable[[], bool],
    *,
    sleep: Callable[[float], None],
    cpu_s: Callable[[], float],
) -> Iterator[Changes]:
    """The changes of each look, until the run has ended; the first look's findings are all new."""
    before: Sequence[Finding] | None = None
    while True:
        last = ended()  # asked first: what is written up to the end is then in the look
        began = cpu_s()
        diagnosis = look()
        cost_s = cpu_s() - began
        yield changes(before or (), diagnosis)._replace(first=before is None, last=last)
        before = diagnosis.findings
        if last:
            return
        _wait(max(LEAST_WAIT_S, LOOK_SHARE * cost_s), ended, sleep)


def _wait(seconds: float, ended: Callable[[], bool], sleep: Callable[[float], None]) -> None:
    """In small naps: nobody should wait for the end of a run that is over."""
    left = seconds
    while left > 0:
        nap = min(left, LEAST_WAIT_S)
        sleep(nap)
        left -= nap
        if ended():
            return


def changes(before: Sequence[Finding], diagnosis: Diagnosis) -> Changes:
    old, now = {_key(one) for one in before}, {_key(one) for one in diagnosis.findings}
    come = [one for one in diagnosis.findings if _key(one) not in old]
    gone = [one for one in before if _key(one) not in now]
    lost, gained = {one.code for one in gone}, {one.code for one in come}
    return Changes(
        diagnosis,
        new=tuple(one for one in come if one.code not in lost),
        changed=tuple(one for one in come if one.code in lost),
        gone=tuple(one for one in gone if one.code not in gained),
    )


def _key(finding: Finding) -> tuple[Fingerprint, Severity]:
    return fingerprint(finding), finding.severity
