"""What can go wrong, by name: every kind of fault there is, and the making of one."""

from __future__ import annotations

from collections.abc import Mapping

from fedvitals.errors import JobError, nearest
from fedvitals.faults import data, system, training, update
from fedvitals.faults.fault import Fault
from fedvitals.faults.spec import FaultSpec

FAULTS: tuple[type[Fault], ...] = (
    data.LabelFlip,
    data.LabelNoise,
    update.SignFlip,
    update.ScaledUpdate,
    update.GaussianUpdate,
    update.ZeroUpdate,
    update.StaleUpdate,
    update.Duplicate,
    update.NanUpdate,
    data.NanBatch,
    training.ExplodingLr,
    training.TinyLr,
    training.FrozenLayer,
    data.UnnormalisedInput,
    data.SwappedFeatures,
    data.Backdoor,
    training.MissingZeroGrad,
    training.DroppedLastBatch,
    system.Crash,
    system.Timeout,
    system.SlowCompute,
    system.SlowLink,
    system.SlowLoader,
    system.SlowAggregation,
    system.MemoryLeak,
)
BY_KIND: Mapping[str, type[Fault]] = {fault.kind: fault for fault in FAULTS}


def kinds() -> list[str]:
    """The names that a job may use."""
    return list(BY_KIND)


def table() -> list[tuple[str, str, str, float | None]]:
    """Kind, what it imitates, the finding it should give, its default strength: a row a fault, for the reference."""
    return [(one.kind, one.imitates, one.finding, one.default_strength) for one in FAULTS]


def make(spec: FaultSpec) -> Fault:
    """The fault that a job asks for, or a JobError that says what is wrong with it."""
    fault = BY_KIND.get(spec.kind)
    if fault is None:
        raise JobError(f"faults: there is no fault {spec.kind!r}{nearest(spec.kind, kinds())}")
    _check_whom(spec, fault)
    return fault(_strength(spec, fault), spec.of)


def _check_whom(spec: FaultSpec, fault: type[Fault]) -> None:
    named, drawn = bool(spec.clients), spec.share is not None
    if fault.on_server and (named or drawn):
        raise JobError(f"faults: {spec.kind} strikes the server; leave out clients and share")
    if not fault.on_server and named == drawn:
        both = "both clients and share" if named else "neither clients nor share"
        raise JobError(f"faults: {spec.kind} has {both}; right is one of them, such as clients = [3] or share = 0.2")


def _strength(spec: FaultSpec, fault: type[Fault]) -> float:
    given = spec.strength
    if given is None:
        return -1.0 if fault.default_strength is None else fault.default_strength
    if not fault.measures:
        raise JobError(f"faults: {spec.kind} takes no strength, but has strength = {given:g}")
    if not fault.lowest <= given <= fault.highest or (fault.whole and given != int(given)):
        kind = "a whole number" if fault.whole else "a number"
        raise JobError(
            f"faults: {spec.kind} with strength = {given:g} ({fault.measures}); right is {kind} from {fault.lowest:g} "
            f"to {fault.highest:g}"
        )
    return given
