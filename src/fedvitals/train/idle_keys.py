"""Keys of a job that are set and do nothing, because another key does not let them: whoever set them is told."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import fields

from fedvitals.train.job import Job
from fedvitals.train.keys import Section, shown
from fedvitals.train.sections import ModelSpec
from fedvitals.train.target import IN_A_ROW

log = logging.getLogger("fedvitals")

ASYNC_ONLY = (
    "buffer",
    "concurrency",
    "staleness_bound",
    "staleness_weight",
    "staleness_power",
    "staleness_hinge",
)
SHAPES = ("hidden", "channels", "kernel", "embedding", "norm", "dropout")
USED = {  # by the models that there are
    "mlp": ("hidden", "norm", "dropout"),
    "cnn": ("hidden", "channels", "kernel", "norm", "dropout"),
    "logistic": (),
    "gru": ("hidden", "embedding"),
}


def tell_idle(job: Job) -> None:
    """A warning for each, before the first round."""
    for key, value, why in idle(job):
        log.warning("%s = %s does nothing here: %s", key, shown(value), why)


def idle(job: Job) -> Iterator[tuple[str, object, str]]:
    """Each with its value, and why. A key that has its default is nobody's wish."""
    server, train = job.server, job.train
    for name, why in _of_model(job.model):
        if name in _changed(job.model):
            yield f"model.{name}", getattr(job.model, name), why
    for name, why in _of_server(job):
        if name in _changed(server):
            yield f"server.{name}", getattr(server, name), why
    if server.mode == "async" and "clients_per_round" in _changed(train):
        why = "without rounds server.concurrency and server.buffer say how many"
        yield "train.clients_per_round", train.clients_per_round, why
    first, when = (job.pruning_rounds[1], " once all is cut") if server.prune else (1, "")
    evaluations = -(-train.rounds // train.evaluate_every) - (first - 1) // train.evaluate_every
    if train.stop_at and evaluations < IN_A_ROW:
        why = f"it takes {IN_A_ROW} evaluations in a row, and there are {evaluations}{when}"
        yield "train.stop_at", train.stop_at, why


def _of_model(model: ModelSpec) -> Iterator[tuple[str, str]]:
    used = USED.get(model.kind)
    if used is None:
        yield from ((name, "a model of your own has what its function gives it") for name in SHAPES)
        return
    yield from ((name, f'model.kind = "{model.kind}" has none') for name in SHAPES if name not in used)
    if model.kind == "gru" and len(model.hidden) > 1:
        yield "hidden", f"a gru has one size: it is {model.hidden[0]}, and the others are nobody's"
    if model.kind in ("mlp", "cnn") and not model.hidden:
        alone = ("dropout", "norm") if model.kind == "mlp" else ("dropout",)
        yield from ((name, "it follows dense layers, and model.hidden = [] has none") for name in alone)


def _of_server(job: Job) -> Iterator[tuple[str, str]]:
    server = job.server
    if server.mode == "sync":
        yield from ((name, 'it is for server.mode = "async"') for name in ASYNC_ONLY)
    else:
        if server.staleness_weight == "constant":
            yield "staleness_power", 'server.staleness_weight = "constant" has none'
        if server.staleness_weight != "hinge":
            yield "staleness_hinge", 'it is for server.staleness_weight = "hinge"'
        if not server.deadline_s:
            yield "late", "nobody is late without a server.deadline_s"
    if not server.prune:
        yield from ((name, "nothing is cut with server.prune = 0.0") for name in ("prune_from", "prune_until"))


def _changed(section: Section) -> set[str]:
    plain = type(section)()
    return {one.name for one in fields(plain) if getattr(section, one.name) != getattr(plain, one.name)}  # type: ignore[arg-type]  # every section is a dataclass
