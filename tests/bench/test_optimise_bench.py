"""The optimisation bench: every case is a job, a child tells what it measured, and memory is seen to be saved."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from fedvitals.bench.optimise import measuring
from fedvitals.bench.optimise.cases import CASES, DEEP_PLAIN, LOWER, NO_ROUNDS, PLAIN, jobs
from fedvitals.bench.optimise.child import Measured, measure
from fedvitals.bench.optimise.measuring import _goals, _told


def test_every_case_is_a_job() -> None:
    """All that the bench names can be read, and those held to a goal are among them."""
    cases = jobs(quick=False)
    assert {PLAIN, DEEP_PLAIN, *CASES, *LOWER} <= set(cases)
    assert cases["24 layers: checkpoint"].train.checkpoint
    assert len(cases["24 layers: checkpoint"].model.hidden) == 24


def test_a_child_tells_what_a_job_takes() -> None:
    """Bytes, time, memory and accuracy; recomputed activations take less memory and give the same accuracy."""
    cases = jobs(quick=True)
    plain, recomputed = measure(cases[DEEP_PLAIN]), measure(cases["24 layers: checkpoint"])
    assert min(plain.seconds, plain.bytes_up, plain.bytes_down, plain.rest_bytes) > 0
    assert recomputed.accuracy == plain.accuracy
    assert recomputed.bytes_up == plain.bytes_up
    assert 0 < recomputed.taken_bytes < 0.8 * plain.taken_bytes


def test_a_job_that_is_refused_says_why() -> None:
    """A model without a chain to recompute: the child ends well, with the reason."""
    job = jobs(quick=True)[PLAIN].replaced({"model.kind": "logistic", "train.checkpoint": True})
    refused = measure(job).refused
    assert refused is not None
    assert "train.checkpoint = true cannot save memory in this model" in refused


def test_goals_hold_what_was_measured_against_the_plain_job() -> None:
    """Half the memory is a saving of 0.5; accuracy that differs is a goal missed."""
    plain = Measured(1.0, 100, 100, rest_bytes=50, peak_bytes=150, accuracy=0.9, imported_bytes=30, virtual_s=3.0)
    half = Measured(1.0, 60, 70, rest_bytes=50, peak_bytes=100, accuracy=0.88, imported_bytes=30, virtual_s=1.5)
    results = {name: [half] for name in jobs(quick=False)} | {PLAIN: [plain], DEEP_PLAIN: [plain]}
    goals = {(row.case, row.measure): row for row in _goals(results)}
    assert goals["24 layers: checkpoint", "memory of training saved"].value == pytest.approx(0.5)
    assert goals["24 layers: checkpoint", "memory of training saved"].met
    assert goals["24 layers: checkpoint", "memory without torch saved"].value == pytest.approx(5 / 12)
    assert goals["24 layers: checkpoint", "memory of the process saved"].value == pytest.approx(1 / 3)
    assert goals[NO_ROUNDS, "times sooner"].value == pytest.approx(1.0)
    assert not goals["24 layers: checkpoint", "accuracy, difference"].met
    assert not goals["prune half", "accuracy lost"].met
    assert goals["prune half", "bytes / all bytes"].value == pytest.approx(0.65)
    assert {row.measure for row in _told(PLAIN, [plain])} >= {"time", "bytes up", "memory of training", "accuracy"}


def test_the_page_tells_every_case_and_its_goal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables, a bar for each deep model whose parts add up to its process, and the rows for programs."""
    mb = 1_000_000
    plain = Measured(2.0, 100, 100, rest_bytes=50 * mb, peak_bytes=150 * mb, accuracy=0.9, imported_bytes=30 * mb)
    half = replace(plain, peak_bytes=100 * mb, virtual_s=1.5)
    cases = jobs(quick=False)
    monkeypatch.setattr(measuring, "measure", lambda job: plain if job in (cases[PLAIN], cases[DEEP_PLAIN]) else half)
    rows = measuring.run(write=str(tmp_path))
    page = (tmp_path / "explanation" / "optimise-bench.md").read_text()
    assert all(f"| {name} |" in page for name in cases)
    assert "| 24 layers: checkpoint | 2.0 | 50.0, 50% less | 70.0, 42% less | 100.0, 33% less |" in page
    assert "| 24 layers: checkpoint | memory of the process saved | 0.333 | at least 0.4 | missed |" in page
    assert "| 24 layers: checkpoint | memory of training saved | 0.500 | at least 0.4 | met |" in page
    assert "If training took nothing at all, 67% of the whole process would be saved" in page
    picture = (tmp_path / "explanation" / "optimise-bench.svg").read_text()
    assert picture.count("at rest: 20 MB") == 4
    assert picture.count(">150 MB<") == 1
    assert picture.count(">100 MB<") == 3
    assert len(json.loads((tmp_path / "explanation" / "optimise-bench.json").read_text())["rows"]) == len(rows)
