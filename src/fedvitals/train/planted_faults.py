"""Whether the faults that a job plants can strike its data: found out before the first round."""

from __future__ import annotations

import logging

from fedvitals.faults.fault import DataFault, Owner
from fedvitals.faults.registry import make as make_fault
from fedvitals.train.federation import Federation
from fedvitals.train.job import Job

log = logging.getLogger("fedvitals")


def check_faults(job: Job, federation: Federation) -> None:
    """A data fault that these rows cannot have is refused here, and not in the middle of the run. One that begins
    after the last round is told of, or whoever planted it wonders why nothing is found."""
    for spec in job.faults:
        if spec.from_round >= job.train.rounds:
            last = job.train.rounds - 1
            log.warning("%s begins in round %d and the last is %d: it strikes nobody", spec.kind, spec.from_round, last)
        fault = make_fault(spec)
        if isinstance(fault, DataFault):
            fault.spoilt(federation.x[:1], federation.y[:1], Owner(job.seed, "", federation.classes))
