"""The jobs whose what-ifs are verified, and the changes to each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from fedvitals.profile.whatif.changes.asynchronous import with_buffer
from fedvitals.profile.whatif.changes.batch import with_batches_of
from fedvitals.profile.whatif.changes.bf16 import in_bf16
from fedvitals.profile.whatif.changes.compress import compressed
from fedvitals.profile.whatif.changes.deadline import rounded_up, with_deadline
from fedvitals.profile.whatif.changes.drop import without
from fedvitals.profile.whatif.changes.evaluate import less_often
from fedvitals.profile.whatif.changes.first import first
from fedvitals.profile.whatif.changes.processes import on_workers
from fedvitals.profile.whatif.messages import SPARSE
from fedvitals.profile.whatif.model import Model
from fedvitals.profile.whatif.prediction import Declined, Prediction
from fedvitals.train import precision
from fedvitals.train.build import build
from fedvitals.train.job import Job
from fedvitals.train.models import build_model


class Change(NamedTuple):
    """One change: its prediction from a run, which names the keys of the job that make it."""

    name: str
    predict: Callable[[Model], Prediction | Declined | None]
    codec: str | None = None  # that is tried on updates of the run, where it kept any


class Case(NamedTuple):
    """One job, and what is changed in it."""

    name: str
    job: Mapping[str, Any]
    changes: tuple[Change, ...]


def _slowest(model: Model) -> Prediction | Declined | None:
    most = max(model.profile.clients, key=lambda one: (one.held_s, one.busy_s))
    return without(model, (most.client,))


def _deadline(share: float) -> Callable[[Model], Prediction | Declined | None]:
    """At which this share of the updates is in time."""

    def predict(model: Model) -> Prediction | None:
        took = sorted(task.seconds for some in model.history.values() for task in some if task.delivered)
        return with_deadline(model, rounded_up(took[int(share * (len(took) - 1))]))

    return predict


def drop(*clients: str) -> Change:
    if not clients:
        return Change("drop the slowest", _slowest)
    return Change(f"drop client {', '.join(clients)}", lambda model: without(model, clients))


def batch(size: int) -> Change:
    return Change(f"batches of {size}", lambda model: with_batches_of(model, size))


def evaluate(times: int) -> Change:
    return Change(f"evaluate every {times} rounds", lambda model: less_often(model, times))


def processes(workers: int) -> Change:
    return Change(f"{workers} processes", lambda model: on_workers(model, workers))


def wait_for(wanted: int) -> Change:
    return Change(f"wait for the first {wanted}", lambda model: first(model, wanted))


def deadline(share: float) -> Change:
    return Change(f"deadline for {share:.0%}", _deadline(share))


def deadline_at(seconds: float) -> Change:
    """Between quick clients and slow ones, where a share would fall among either."""
    return Change(f"deadline of {seconds:g} s", lambda model: with_deadline(model, seconds))


def codec(spec: str, *, down: bool = False) -> Change:
    name = f"{spec} {'both ways' if down else 'up'}"
    return Change(name, lambda model: compressed(model, spec, down=down), spec)


def unbound(buffer: int) -> Change:
    """Without rounds."""
    return Change(f"async, buffer of {buffer}", lambda model: with_buffer(model, buffer))


def bf16() -> Change:
    """By what a step of the job's model takes here, where it does not pay too."""

    def predict(model: Model) -> Prediction | None:
        job, table = Job.from_dict(dict(model.told.config)), model.timeline.participations
        federation = build(job)
        usual = round(float(np.nansum(table.samples * table.epochs) / np.nansum(table.steps)))  # last ones are smaller
        rows = max(federation.train_rows, key=len)[:usual]
        steps = precision.measured(build_model(job, federation), federation.x[rows], federation.y[rows])
        return in_bf16(model, steps.bf16_s - steps.fp32_s)

    return Change("bf16", predict)


def _virtual(network: str, clients: int, chosen: int, **more: Any) -> dict[str, Any]:
    train = {"rounds": 60, "clients_per_round": chosen, "epochs": 2, "batch_size": 16}
    data = {"source": "synthetic", "clients": clients, "partition": "quantity", "rows": 80}
    job: dict[str, Any] = {"name": "whatif", "data": data, "train": train, "network": {"profile": network}}
    return job | {"execute": {"clock": "virtual"}} | more


SLOW = [
    {"kind": "slow-compute", "clients": ["3"], "strength": 12.0},
    {"kind": "slow-link", "clients": ["5"], "strength": 4.0},
]
SYNCHRONOUS = (drop(), deadline(0.8), deadline(0.9), wait_for(6))
KEPT: dict[str, Any] = {"observe": {"keep_updates": True}}
CODECS = (codec("fp16"), codec("quantize:8"), codec(SPARSE), codec("quantize:8", down=True))
VIRTUAL = (
    Case(
        "nominal devices, two slow clients",
        _virtual("none", 20, 10, faults=SLOW),
        (drop("3"), drop("3", "5"), deadline(0.9), wait_for(9), codec("quantize:8"), unbound(5)),
    ),
    Case(
        "lan",
        _virtual("lan", 20, 8),
        (*SYNCHRONOUS, batch(32), batch(64), evaluate(5), codec("quantize:8"), unbound(4)),
    ),
    Case("broadband", _virtual("broadband", 20, 8), (*SYNCHRONOUS, batch(64), *CODECS, unbound(4), unbound(8))),
    Case("mobile", _virtual("mobile", 20, 8), (*SYNCHRONOUS, batch(32), batch(64), *CODECS, unbound(2), unbound(8))),
    Case(
        "mobile, 20 of 100",
        _virtual("mobile", 100, 20, seed=7),
        (drop(), deadline(0.8), wait_for(16), wait_for(10), batch(64), codec(SPARSE), unbound(5), unbound(20)),
    ),
    Case(
        "cross-silo, everybody",
        _virtual("cross-silo", 6, 6),
        (drop(), deadline(0.9), wait_for(5), batch(64), codec("quantize:8"), unbound(3)),
    ),
    Case(
        "mobile, a larger model, updates kept",
        _virtual("mobile", 20, 8, model={"kind": "mlp", "hidden": [256]}, **KEPT),
        (
            *CODECS,
            codec("topk:0.05 | quantize:8 | entropy"),
            codec("grid:0.001 | entropy"),
            codec("feedback(ternary:0.1 | entropy)"),
            codec("fp16", down=True),
            unbound(4),
        ),
    ),
    Case(
        "mobile, with a deadline and more clients than needed",
        _virtual("mobile", 30, 8, server={"deadline_s": 0.4, "over_select": 1.5}, seed=3),
        (drop(), batch(64), codec("quantize:8"), unbound(4)),
    ),
)

DIGITS = {"source": "digits", "clients": 20, "partition": "quantity", "sigma": 0.8}
BIG_TEST = {"source": "synthetic", "clients": 40, "partition": "quantity", "rows": 60, "test_rows": 20_000}
LAST = range(13, 20)
WIDE = {"kind": "mlp", "hidden": [1024]}  # 307 kB
PICTURES = {"source": "fedvitals.bench.rows:pictures", "clients": 400, "partition": "quantity"}
SENTENCES = {"source": "fedvitals.bench.rows:sentences", "clients": 400, "partition": "quantity"}


def _real(
    data: Mapping[str, Any],
    rounds: int,
    chosen: int,
    executor: str,
    batch_size: int = 16,
    workers: int = 2,
    **more: Any,
) -> dict[str, Any]:
    train = {"rounds": rounds, "clients_per_round": chosen, "epochs": 2, "batch_size": batch_size}
    execute = {"executor": executor, "workers": workers if executor == "processes" else 1}
    execute |= {"chunk": 10} if executor == "vectorised" else {}
    return {"name": "whatif", "data": dict(data), "train": train, "execute": execute, **more}


def _slow_links(strength: float, *clients: int) -> list[dict[str, Any]]:
    """Clients whose uploads are waited for: for seconds of their own, however busy the machine is."""
    return _struck("slow-link", strength, clients)


def _silent(strength: float, *clients: int) -> list[dict[str, Any]]:
    """Clients that never answer, and are waited for so many seconds."""
    return _struck("timeout", strength, clients)


def _struck(kind: str, strength: float, clients: Iterable[int]) -> list[dict[str, Any]]:
    return [{"kind": kind, "clients": [str(one) for one in clients], "strength": strength}]


REAL = (
    Case(
        "mlp one by one, slow links",
        _real(DIGITS, 6, 10, "sequential", faults=_slow_links(12.0, 3, 7, 11)),
        (drop("3"), drop("3", "7")),
    ),
    Case(
        "mlp one by one, all links slow",
        _real(DIGITS, 3, 10, "sequential", faults=_slow_links(4.0, *range(20))),
        (processes(2),),
    ),
    Case(
        "mlp on two processes, slow links",
        _real(DIGITS, 10, 10, "processes", faults=_slow_links(12.0, 3, 7, 11)),
        (drop("3"), drop("3", "7")),
    ),
    Case(
        "wide mlp one by one, slow links",
        _real(DIGITS, 6, 10, "sequential", model=WIDE, faults=_slow_links(12.0, 3, 7, 11), **KEPT),
        (codec("quantize:8"), codec(SPARSE)),
    ),
    Case(
        "mlp on two processes, all links slow, some slower",
        _real(DIGITS, 8, 5, "processes", faults=[*_slow_links(3.0, *range(14)), *_slow_links(10.0, *range(14, 20))]),
        (unbound(2), unbound(5)),
    ),
    Case(
        "mlp, a process each, some links slow",
        _real(DIGITS, 8, 6, "processes", workers=6, faults=[*_slow_links(6.0, *range(13)), *_slow_links(30.0, *LAST)]),
        (unbound(3), deadline_at(0.4), wait_for(4)),
    ),
    Case("wide mlp one by one", _real(DIGITS, 15, 10, "sequential", 32, model=WIDE), (bf16(),)),
    Case(
        "mlp one by one, some silent",
        _real(DIGITS, 5, 10, "sequential", faults=_silent(0.1, *range(6))),
        (processes(2), drop("0", "1", "2")),
    ),
    Case(
        "mlp on two processes, some silent",
        _real(DIGITS, 8, 10, "processes", faults=_silent(0.1, *range(6))),
        (drop("0", "1"), drop("0", "1", "2", "3")),
    ),
    Case(
        "mlp batches of clients, a slow link",
        _real(BIG_TEST, 12, 40, "vectorised", faults=_slow_links(4.0, 3)),
        (drop("3"), evaluate(4)),
    ),
    Case(
        "logistic one by one, large test set",
        _real(BIG_TEST, 45, 5, "sequential", model={"kind": "logistic"}),
        (evaluate(5), batch(32)),
    ),
    Case("mlp one by one", _real(DIGITS, 60, 10, "sequential", 32), (batch(64), batch(128))),
    Case(
        "cnn one by one",
        _real(PICTURES, 6, 10, "sequential", model={"kind": "cnn"}),
        (evaluate(3), batch(32), processes(2)),
    ),
    Case(
        "gru one by one",
        _real(SENTENCES, 8, 12, "sequential", model={"kind": "gru", "hidden": [32]}),
        (evaluate(4), batch(32)),
    ),
)
