"""Updates that a loop leaves out of its aggregate: whenever it says so, it is written."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from apart import session
from torch import nn
from watching import by_client, read, round_of, small_model, started


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize("values", [{}, {"sketches": False}, {"level": "sealed"}])
def test_updates_that_are_left_out_afterwards_are_rejected(flushed: bool, values: dict[str, Any]) -> None:
    """Of single clients, cohorts and clients afar alike, whether or not they were written before."""
    model = small_model()
    with round_of(model, **values) as rnd:
        for client in ("near", "good"):
            with rnd.client(client) as c:
                c.submit(small_model(1))
        cohort = rnd.cohort(["batched", "fine"])
        cohort.submit({name: torch.stack([tensor, tensor]) for name, tensor in model.state_dict().items()})
        for client in ("far", "well"):
            with session(rnd.ticket(client), model) as c:
                c.submit(small_model(2))
            rnd.merge(c.to_bytes(), client=client)
        if flushed:
            rnd.recorder.flush()
        rnd.rejected(["near", "batched", "far"])
    found = {name: (one.outcome, one.applied_version) for name, one in by_client().items()}
    assert found == {
        **dict.fromkeys(("near", "batched", "far"), ("rejected", None)),
        **dict.fromkeys(("good", "fine", "well"), ("used", 1)),
    }
    with read() as reader:
        assert [(one.selected, one.used, one.failed) for one in reader.rounds()] == [(6, 3, 0)]


@pytest.mark.parametrize("with_model", [True, False])
def test_a_client_without_statistics_is_rejected_in_its_record_too(with_model: bool) -> None:
    """Who sent what does not fit, alone or in a cohort, and everybody in a round without a model."""
    model = small_model()
    with round_of(model if with_model else None) as rnd:
        with rnd.client("misfit") as c:
            c.submit(nn.Linear(4, 9), loss=0.5)
        with rnd.client("watched") as c:
            c.watch(model)
            c.submit(small_model(1))
        if with_model:
            rnd.cohort(["batched"]).submit({"odd": torch.zeros(1, 3)})
        with rnd.client("good") as c:
            c.submit(small_model(2))
        rnd.recorder.flush()
        rnd.rejected(["misfit", "watched", "batched"])
    found = by_client()
    assert {name for name, one in found.items() if one.outcome == "used"} == {"good"}
    assert (found["misfit"].loss, found["misfit"].applied_version) == (0.5, None)
    assert (found["watched"].update_norm or 0) > 0
    with read() as reader:
        assert [one.used for one in reader.rounds()] == [1]


@pytest.mark.parametrize("values", [{}, {"sketches": False}, {"level": "sealed"}])
def test_a_rejection_after_the_round_is_written(values: dict[str, Any]) -> None:
    """Though everything of the round was summarised and compared by then; the cosines stay as they were put right."""
    model = small_model()
    with started(**values) as run:
        with run.round(0, model=model) as rnd:
            for seed, client in enumerate(("near", "good", "fine")):
                with rnd.client(client) as c:
                    c.submit(small_model(seed + 1))
                run.recorder.flush()
            rnd.cohort(["a", "b"]).submit({name: torch.stack([t, t + 1.0]) for name, t in model.state_dict().items()})
        run.recorder.flush()
        run.diagnose()  # all is on disk
        before = by_client()
        rnd.rejected(["near", "b"])
    found = by_client()
    assert {name for name, one in found.items() if one.outcome == "rejected"} == {"near", "b"}
    assert {name: one.cosine for name, one in found.items()} == {name: one.cosine for name, one in before.items()}
    with read() as reader:
        assert [(one.selected, one.used) for one in reader.rounds()] == [(5, 3)]


def test_a_rejection_that_comes_too_late_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a round with too many participations to remember after its end; inside the round each can be rejected."""
    monkeypatch.setattr("fedvitals.capture.buffer.MOST_REMEMBERED", 2)
    model = small_model()
    stacked = {name: torch.stack([tensor] * 3) for name, tensor in model.state_dict().items()}
    with started() as run:
        with run.round(0, model=model) as rnd:
            rnd.cohort(["a", "b", "c"]).submit(stacked)
            run.recorder.flush()
            rnd.rejected(["a"])
        run.recorder.flush()
        for client in ("b", "c"):
            rnd.rejected([client])
    assert [one.outcome for one in by_client().values()] == ["rejected", "used", "used"]
    (told,) = [record.getMessage() for record in caplog.records]
    assert "has to be told before it is over" in told
