"""The bench of codecs: it counts what is sent, and a way that never gets there is not counted as if it did."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from fedvitals.bench.codecs import cases, measuring, page, wire
from fedvitals.bench.codecs.cases import FOLDS, PROBLEMS, SEEDS, Way, ways
from fedvitals.bench.codecs.measuring import Raced
from fedvitals.bench.codecs.racing import Race, race
from fedvitals.errors import FedvitalsError

DIGITS = PROBLEMS[0]


def test_a_target_is_reached_when_it_has_held() -> None:
    """Three in a row: the bytes are those of the third."""
    one = Race((0.5, 0.9, 0.8, 0.9, 0.9, 0.9), (1.0, 2.0, 3.0, 4.0, 5.0, 6.0))
    assert one.reached(0.85) == 5
    assert one.reached(0.95) is None
    raced = Raced("digits", 0.85, {page.PLAIN: Race((0.9,), (600.0,)), "way": one, "never": Race((0.1,), (1.0,))})
    assert raced.fewer("way") == 100.0
    assert raced.fewer("never") == 0.0


def test_bytes_are_those_of_the_run() -> None:
    """Uncompressed: a model down and an update up for each client of each round."""
    job = DIGITS.job(0).replaced({"train.rounds": 2})
    found = race(job, Way("not compressed"))
    values = 64 * 64 + 64 + 64 * 10 + 10
    assert found.bytes == pytest.approx([2 * 10 * (4 * values + 3), 4 * 10 * (4 * values + 3)])


def test_whole_models_lose_what_differences_keep() -> None:
    """The tutorials' way: a tenth of each layer's weights, the rest zero; and its bytes are counted as they are."""
    job = DIGITS.job(0).replaced({"train.rounds": 3, "train.lr": 0.05})
    plain, *_, weights = ways(DIGITS)
    whole, thinned = race(job, plain), race(job, weights)
    assert thinned.bytes[-1] < 0.8 * whole.bytes[-1]
    assert thinned.accuracy[-1] != whole.accuracy[-1]


def test_every_digit_is_held_out_once_over_the_seeds() -> None:
    """Seeds that nobody looked at, a fold of their own each; train and test rows are apart, all classes in both."""
    assert not set(SEEDS) & set(range(10))
    assert {DIGITS.job(seed).data.source.rpartition("_")[2] for seed in SEEDS} == {str(fold) for fold in range(FOLDS)}
    folds = [getattr(cases, f"digits_{fold}")(None) for fold in range(FOLDS)]
    assert sum(len(fold["y_test"]) for fold in folds) == len(folds[0]["y_test"]) + len(folds[0]["y_train"]) == 1797
    rows = [{row.tobytes() for row in fold["x_test"]} for fold in folds]
    assert len(set.union(*rows)) == sum(map(len, rows)) == 1797  # no two digits are the same
    assert all(set(fold["y_test"]) == set(range(10)) for fold in folds)
    with pytest.raises(AttributeError, match="digits_5"):
        _ = cases.digits_5


def test_what_was_chosen_later_is_measured_on_seeds_of_its_own() -> None:
    """Shakespeare's job and steps were chosen after other seeds had been measured: none of them counts again."""
    for problem in PROBLEMS:
        looked_at = range(15) if problem.name == "shakespeare" else range(10)
        assert not set(problem.seeds) & set(looked_at)
        assert len(problem.seeds) == 5
    assert PROBLEMS[2].job(15).server.aggregator == "fedavgm"


def test_messages_are_of_a_million_values() -> None:
    """In four named tensors, other values for another seed."""
    assert wire.RAW_BYTES == 4_000_000
    assert sum(tensor.numel() for tensor in wire.update().values()) == 1_000_000
    assert not torch.equal(wire.update(1)["0.bias"], wire.update(2)["0.bias"])


def test_a_page_says_what_was_measured() -> None:
    """Every way of every problem, and a picture that is one."""
    races = {way.name: Race((0.5, 0.9, 0.9, 0.9), (1e6, 2e6, 3e6, 4e6)) for way in ways(DIGITS)}
    raced = [Raced("digits", 0.85, races)]
    rows = list(measuring._judged("digits", raced))
    text = page.text(rows)
    assert all(way.name in text for way in ways(DIGITS))
    assert "Not run for all seeds" not in text
    assert page.drawn("digits", raced).startswith("<svg")


def test_a_page_says_what_was_not_run() -> None:
    """A way that there was no time for is named, with the seeds that it has."""
    done = Race((0.5, 0.9, 0.9, 0.9), (1e6, 2e6, 3e6, 4e6))
    raced = [Raced("digits", 0.85, {page.PLAIN: done, page.OURS: done}) for _ in range(2)]
    raced[0].races["without feedback"] = done
    text = page.text(list(measuring._judged("digits", raced)))
    assert "without feedback (1 of 2 seeds), weights instead of differences (0 of 2 seeds)" in text


def test_one_problem_is_raced_again_and_the_page_keeps_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows and sections of what was not measured stand as they did; pictures of it are not touched."""
    done = Race((0.5, 0.9, 0.9, 0.9), (1e6, 2e6, 3e6, 4e6))
    raced = {name: [Raced(name, 0.85, {page.PLAIN: done, page.OURS: done})] for name in ("digits", "fashion")}
    old = [row for name in raced for row in measuring._judged(name, raced[name])]
    page.write(tmp_path, [one for own in raced.values() for one in own], old)
    first = (tmp_path / page.PAGE).read_text()
    (tmp_path / page.PAGE).with_name("codec-bench-digits.svg").write_text("as it was")

    monkeypatch.setattr(measuring, "_asked", lambda only, quick: ())
    for again in ([], raced["fashion"]):  # there was no time for it; it was raced
        monkeypatch.setattr(measuring, "_raced", lambda problems, results, until, again=again: again)
        rows = measuring.run(only="fashion", write=str(tmp_path), results=str(tmp_path / "none"))
        assert rows == old
    assert (tmp_path / page.PAGE).read_text() == first
    assert (tmp_path / page.PAGE).with_name("codec-bench-digits.svg").read_text() == "as it was"


def test_only_what_is_there_is_raced_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An unknown problem, one without its data, and a page that is not there are refused before anything is run."""
    with pytest.raises(FedvitalsError, match="right is one of digits, fashion, shakespeare"):
        measuring.run(only="mnist")
    with pytest.raises(FedvitalsError, match="not with --quick"):
        measuring.run(only="digits", quick=True)
    with pytest.raises(FedvitalsError, match="goes on from a page that is there"):
        measuring.run(only="digits", write=str(tmp_path))
    monkeypatch.setenv("FEDVITALS_BENCH_DATA", str(tmp_path))
    with pytest.raises(FedvitalsError, match="there is no"):
        measuring.run(only="shakespeare")
