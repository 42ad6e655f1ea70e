"""Keys that are set and do nothing are told; those that were left alone are not."""

from __future__ import annotations

from typing import Any

import pytest

from fedvitals.train.idle_keys import idle, tell_idle
from fedvitals.train.job import Job

ASYNC: dict[str, Any] = {"server.mode": "async", "execute.clock": "virtual"}

OTHERS = ["model.channels", "model.kernel", "model.embedding"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({}, []),
        ({"server.staleness_bound": 3, "server.buffer": 4}, ["server.buffer", "server.staleness_bound"]),
        (ASYNC | {"server.staleness_bound": 3, "server.buffer": 4}, []),
        (ASYNC | {"train.clients_per_round": 8}, ["train.clients_per_round"]),
        (ASYNC | {"server.late": "use"}, ["server.late"]),
        (ASYNC | {"server.late": "use", "server.deadline_s": 2.0}, []),
        (ASYNC | {"server.staleness_hinge": 9}, ["server.staleness_hinge"]),
        (ASYNC | {"server.staleness_hinge": 9, "server.staleness_weight": "hinge"}, []),
        (ASYNC | {"server.staleness_power": 1.0, "server.staleness_weight": "constant"}, ["server.staleness_power"]),
        ({"server.prune_from": 5, "server.prune_until": 9}, ["server.prune_from", "server.prune_until"]),
        ({"server.prune_from": 5, "server.prune_until": 9, "server.prune": 0.5}, []),
        ({"train.stop_at": 0.5, "train.rounds": 10, "train.evaluate_every": 5}, ["train.stop_at"]),
        ({"train.stop_at": 0.5, "train.rounds": 11, "train.evaluate_every": 5}, []),
        ({"train.stop_at": 0.5, "train.rounds": 6, "server.prune": 0.5, "server.prune_until": 4}, []),
        ({"train.stop_at": 0.5, "train.rounds": 6, "server.prune": 0.5, "server.prune_until": 5}, ["train.stop_at"]),
        ({"model.hidden": [8], "model.norm": "batch", "model.dropout": 0.1}, []),
        ({"model.kernel": 3, "model.channels": [4], "model.embedding": 4}, OTHERS),
        ({"model.hidden": [], "model.norm": "batch", "model.dropout": 0.1}, ["model.dropout", "model.norm"]),
        ({"model.kind": "cnn", "model.kernel": 3, "model.channels": [4], "model.embedding": 4}, ["model.embedding"]),
        ({"model.kind": "cnn", "model.hidden": [], "model.norm": "group", "model.dropout": 0.1}, ["model.dropout"]),
        ({"model.kind": "logistic", "model.hidden": [8], "model.dropout": 0.1}, ["model.hidden", "model.dropout"]),
        ({"model.kind": "gru", "model.hidden": [8], "model.embedding": 4}, []),
        ({"model.kind": "gru", "model.hidden": [8, 4], "model.norm": "group"}, ["model.norm", "model.hidden"]),
        ({"model.kind": "my_models:net", "model.hidden": [8], "model.norm": "group"}, ["model.hidden", "model.norm"]),
    ],
)
def test_keys_that_another_key_leaves_idle(changes: dict[str, Any], named: list[str]) -> None:
    """Each by its name, in order; nothing of a job in which all do something."""
    assert [key for key, _, _ in idle(Job().replaced(changes))] == named


def test_the_warning_spells_a_key_as_a_job_file_does(caplog: pytest.LogCaptureFixture) -> None:
    """With its value, and why it does nothing."""
    tell_idle(Job().replaced({"model.kind": "gru", "model.hidden": [8, 4]}))
    assert caplog.messages == [
        "model.hidden = [8, 4] does nothing here: a gru has one size: it is 8, and the others are nobody's"
    ]
