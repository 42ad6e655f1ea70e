"""What is told beside a model is kept as it was when it was told, and keeps nothing else alive."""

from __future__ import annotations

import copy
import gc
import json
import weakref

import numpy as np
import torch
from watching import by_client, moved, round_of, small_model


def test_values_that_a_loop_goes_on_to_use_are_kept_as_they_were() -> None:
    """One tensor and one array for all clients, filled anew for each."""
    model = small_model()
    hits, loss, seen = torch.zeros(1), np.zeros(()), {"rows": np.zeros(1)}
    with round_of(model) as rnd:
        for number in range(3):
            with rnd.client(number) as c:
                hits.fill_(number + 1)
                loss.fill(number + 1)
                seen["rows"].fill(number + 1)
                c.step(loss)
                c.submit(moved(model), loss=loss, hits=hits, seen=seen)
    for name, one in by_client().items():
        expected = float(name) + 1
        assert (one.loss, one.first_loss) == (expected, expected)
        assert json.loads(one.metrics or "") == {"hits": expected, "seen": {"rows": expected}}


def test_metrics_keep_no_model_and_no_large_tensor_alive() -> None:
    """A metric that still has its gradients' history, and one that is as large as a model."""
    model, alive = small_model(), list[weakref.ref[object]]()
    with round_of(model) as rnd:
        for number in range(3):
            with rnd.client(number) as c:
                local = copy.deepcopy(model)
                penalty = sum((one.square().sum() for one in local.parameters()), torch.zeros(()))
                outputs = torch.zeros(100, 100)
                c.submit(local.state_dict(), penalty=penalty, parts=[penalty], outputs=outputs)
                alive += [weakref.ref(one) for one in (*local.parameters(), outputs)]
                expected = penalty.item()
            del local, penalty, outputs
        gc.collect()
        assert [one() for one in alive if one() is not None] == []
    kept = json.loads(by_client()["2"].metrics or "")
    assert kept == {"penalty": expected, "parts": [expected], "outputs": "(100, 100) float32"}
