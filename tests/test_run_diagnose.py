"""`run.diagnose()` and `rnd.verdicts()`: the doctor asked from inside the training."""

from __future__ import annotations

import copy
import logging
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy

import fedvitals
from fedvitals.diagnose import Diagnosis
from fedvitals.diagnose.checkups import Verdicts
from fedvitals.diagnose.registry import RULES
from fedvitals.run import NotRecorded, Run
from fedvitals.vocabulary import Finding, Grade, Severity

MODEL = [np.zeros((4, 3), np.float32), np.zeros(4, np.float32)]


def started(**values: Any) -> Run:
    run = fedvitals.start("asked", **{"resources_every_s": 0.0} | values)
    assert isinstance(run, Run)
    return run


def trained(seed: int, bad: bool = False) -> list[np.ndarray]:
    """A model after a pretended training; a bad one has a value that is no number."""
    drawn = np.random.default_rng(seed)
    state = [array + 0.1 + 0.01 * drawn.standard_normal(array.shape, dtype=np.float32) for array in MODEL]
    if bad:
        state[0][0, 0] = np.nan
    return state


def codes(diagnosis: Diagnosis) -> set[str]:
    return {one.code for finding in diagnosis.findings for one in (finding, *finding.symptoms)}


def fail(run: Run) -> None:
    with pytest.raises(ValueError, match="broken"), run.round(0) as rnd, rnd.client("7"):
        raise ValueError("broken")


def test_a_run_is_diagnosed_while_it_goes_on_and_after() -> None:
    """What happened a moment ago is in it; after the close the same is found again."""
    with started() as run:
        fail(run)
        during = run.diagnose()
        assert during.run.status is fedvitals.Status.RUNNING
        assert "FL101" in codes(during)
    after = run.diagnose()
    assert after.run.status is fedvitals.Status.FINISHED
    assert "FL101" in codes(after)
    assert after.run.id == run.id


def test_asking_is_not_counted_against_the_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """The training asked for it: it must not make the recorder look like a burden."""
    with started() as run:
        before = run.recorder.governor.spent_ns
        run.diagnose()
        assert run.recorder.governor.spent_ns == before


def test_trouble_gives_one_warning_and_says_that_nothing_was_seen(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A run whose folder is gone: no exception, no claim that all is well."""
    run = started()
    run.close()
    shutil.rmtree(tmp_path / "runs")
    with caplog.at_level(logging.WARNING):
        first, second = run.diagnose(), run.diagnose()
    assert len(caplog.records) == 1
    for diagnosis in (first, second):
        assert diagnosis.findings == ()
        assert not diagnosis.healthy
        assert set(diagnosis.not_observable) == {rule.code for rule in RULES}
        assert str(diagnosis).startswith("nothing could be observed in asked")


def test_a_run_that_is_not_recorded_has_nothing_to_observe() -> None:
    """The same form, without a folder."""
    run = fedvitals.start("t", mode="off")
    assert isinstance(run, NotRecorded)
    diagnosis = run.diagnose()
    assert (diagnosis.findings, diagnosis.healthy, len(diagnosis.not_observable)) == ((), False, len(RULES))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_can_ask_and_harms_nothing() -> None:
    """It is told that nothing can be observed; the parent's run goes on."""
    with started() as run:
        fail(run)
        child = os.fork()
        if child == 0:
            os._exit(0 if not run.diagnose().looked else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert "FL101" in codes(run.diagnose())


def test_verdicts_come_before_the_aggregation() -> None:
    """Asked inside the round, they name the client whose update is no number, by any form of its id, and only in the
    rounds in which it is; what is dropped for it is recorded as rejected."""
    seen: list[list[object]] = []
    with started() as run:
        for number in range(4):
            with run.round(number, model=MODEL) as rnd:
                for cid in range(5):
                    with rnd.client(cid, samples=10) as client:
                        client.submit(trained(number * 10 + cid, bad=cid == 3 and number >= 2), loss=1.0)
                bad = rnd.verdicts()
                seen.append([cid for cid in range(5) if cid in bad])
                rnd.rejected(list(bad))
                assert rnd.verdicts().keys() == bad.keys()
    assert seen == [[], [], [3], [3]]
    with closing(fedvitals.open_store(run.recorder.settings).open(run.id)) as reader:
        outcomes = {(one.round, one.client): one.outcome for one in reader.participations()}
    assert {key for key, outcome in outcomes.items() if outcome == "rejected"} == {(2, "3"), (3, "3")}


def test_verdicts_of_a_broken_store_are_empty(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """One warning, however often it is asked; the training goes on."""
    with started() as run, run.round(0, model=MODEL) as rnd:
        shutil.rmtree(tmp_path / "runs")
        with caplog.at_level(logging.WARNING):
            assert [len(rnd.verdicts()), len(rnd.verdicts())] == [0, 0]
        assert sum("in verdicts: " in record.getMessage() for record in caplog.records) == 1


def test_verdicts_are_a_mapping_by_any_form_of_the_id() -> None:
    """A number asks for the client of that name; what is not there is not there."""
    finding = Finding("FL405", "x", Severity.CRITICAL, Grade.CERTAIN, (1,), ("3",), (), "because", {}, ())
    verdicts = Verdicts({"3": (finding,)})
    assert (3 in verdicts, "3" in verdicts, 4 in verdicts) == (True, True, False)
    assert (verdicts[3], verdicts.get(4), list(verdicts)) == ((finding,), None, ["3"])
    assert repr(verdicts) == "Verdicts({'3': ['FL405']})"


def _unscaled(run: Run, verdicts: list[list[object]]) -> None:
    """Six clients on digits, of whom one forgets to divide by 16; whoever is named is left out."""
    digits, model = load_digits(), nn.Linear(64, 10)
    x, y = torch.tensor(digits.data / 16, dtype=torch.float32), torch.tensor(digits.target)
    for number in range(5):
        with run.round(number, model=model) as rnd:
            states = {}
            for cid in range(6):
                own, rows = copy.deepcopy(model), torch.arange(cid, len(y), 6)
                optimizer = torch.optim.SGD(own.parameters(), lr=0.1)
                with rnd.client(cid, samples=len(rows)) as client:
                    client.watch(own)
                    for batch in torch.split(rows, 32):
                        optimizer.zero_grad()
                        loss = cross_entropy(own(x[batch] * (16 if cid == 4 else 1)), y[batch])
                        torch.autograd.backward(loss)
                        optimizer.step()
                        client.step(loss.detach())
                    states[cid] = own.state_dict()
                    client.submit(states[cid], loss=float(loss.detach()))
            bad = rnd.verdicts()
            verdicts.append([*bad])
            kept = [state for cid, state in states.items() if cid not in bad]
            model.load_state_dict({name: torch.stack([one[name] for one in kept]).mean(0) for name in kept[0]})


def test_verdicts_keep_inputs_of_another_scale_out_of_every_round() -> None:
    """Its rows stay as they are, so it is named in each round, and not in the first one alone; it had no "before"."""
    verdicts: list[list[object]] = []
    torch.manual_seed(0)
    with started() as run:
        _unscaled(run, verdicts)
        (found,) = [one for one in run.diagnose().findings if one.code == "FL506"]
    assert verdicts == [["4"]] * 5
    assert found.rounds == (0, 1, 2, 3, 4)
    assert "as long as the others', and its update" in found.why
