"""`fedvitals profile RUN --verify`: the recorded job again with a change, to hold its prediction against."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from fedvitals.errors import FedvitalsError
from fedvitals.profile.whatif.prediction import Prediction, Verified
from fedvitals.profile.whatif.told import Told
from fedvitals.show.cli.terminal import say
from fedvitals.show.words import safe
from fedvitals.vocabulary import Status

if TYPE_CHECKING:
    from fedvitals.profile.profile import Profile
    from fedvitals.settings import Settings
    from fedvitals.train.job import Job

AS_IT_WAS = "as it was"


def job_of(profile: Profile) -> Job:
    """The job that made the run, or an error that says that none did."""
    from fedvitals.errors import JobError
    from fedvitals.train.job import Job

    run = profile.run
    if not Told.of(run).is_job:
        raise JobError(
            f"run {safe(run.id)} cannot be verified: its configuration is no job of the engine, so it cannot be made "
            "again with a change; without --verify the predictions are shown"
        )
    if run.status is not Status.FINISHED:
        raise JobError(
            f"run {safe(run.id)} cannot be verified: it is {run.status.value}, and its job, made again, would be whole"
        )
    return Job.from_dict(run.config, source=f"the job of run {safe(run.id)}")


def verify(profile: Profile, predictions: Sequence[Prediction], most: int, settings: Settings) -> list[Verified]:
    """The best of the predictions that the engine can make, each carried out; on the real clock first the job without a
    change, which says how much slower or faster the machine is now."""
    job = job_of(profile)
    chosen = [one for one in predictions if one.unverified is None and one.job is not None][:most]
    found: list[Verified] = []
    with tempfile.TemporaryDirectory(prefix="fedvitals-verify-") as folder:
        apart = replace(settings, mode="on", store="", dir=folder)
        if chosen and not Told.of(profile.run).virtual:
            found.append(_carried_out(job, {}, AS_IT_WAS, "", profile.wall_s, apart))
        found += [_carried_out(job, one.job or {}, one.change, one.kind, one.predicted_s, apart) for one in chosen]
    now_s = found[0].measured_s if found and found[0].change == AS_IT_WAS else None
    if now_s is not None and profile.wall_s > 0:
        found = [replace(one, machine=now_s / profile.wall_s) for one in found]
    if not chosen:
        say("there is nothing to verify: no change that saves time can be made by the engine on this run")
    return found


def _carried_out(
    job: Job, changes: Mapping[str, Any], change: str, kind: str, predicted_s: float, settings: Settings
) -> Verified:
    say(f"running it: {safe(change, 200)} ...")
    try:
        run_id, measured_s = measured(job.replaced(changes, source="what-if"), settings)
    except FedvitalsError as error:
        return Verified(change, kind, predicted_s, None, why=str(error))
    return Verified(change, kind, predicted_s, measured_s, run=run_id)


def measured(job: Job, settings: Settings) -> tuple[str, float]:
    """Carries a job out; its id, and how long it took on its own clock, as a profile counts."""
    from fedvitals.errors import StoreError
    from fedvitals.profile.timeline import read_timeline
    from fedvitals.store import open_store
    from fedvitals.train.engine import train

    result = train(job, settings=settings)
    if result.run_id is None:
        raise StoreError(f"the changed run was not recorded: {safe(settings.dir)} cannot be written")
    with closing(open_store(settings).open(result.run_id)) as reader:
        return result.run_id, read_timeline(reader).end_ns / 1e9
