"""The fault bench plays few cells, in which every pair of circumstances that can meet does."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.bench.faults.cells import Cell
from fedvitals.bench.faults.design import LOUD, covering, planned, quick
from fedvitals.bench.faults.existing import check_tuning, full_cross, omitted, variants, why_not
from fedvitals.bench.faults.problems import FOLDER_VARIABLE, PROBLEMS
from fedvitals.errors import FedvitalsError
from fedvitals.faults.registry import BY_KIND


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty folder of data, so that plans do not depend on the machine."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))


@pytest.fixture(scope="module")
def plans(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Cell], list[Cell]]:
    """The final plan and the tuning plan, where all data is there."""
    folder = tmp_path_factory.mktemp("data")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER_VARIABLE, str(folder))
        for problem in PROBLEMS.values():
            if problem.file:
                problem.path.parent.mkdir()
                problem.path.touch()
        return planned(), planned(tuning=True)


@given(st.integers(0, 100), st.lists(st.integers(2, 4), min_size=2, max_size=4), st.integers(0, 6))
def test_a_covering_design_covers_every_pair_that_can_be(seed: int, sizes: list[int], forbidden: int) -> None:
    """And no row that may not exist is in it."""
    levels = {f"f{number}": tuple(range(size)) for number, size in enumerate(sizes)}

    def exists(row: dict[str, Any]) -> bool:
        return not (row.get("f0") == 0 and row.get("f1") == forbidden)

    rows = list(covering(levels, exists, seed))
    whole = [dict(zip(levels, values, strict=True)) for values in product(*levels.values())]
    possible = {pair for row in whole if exists(row) for pair in combinations(row.items(), 2)}
    assert {pair for row in rows for pair in combinations(row.items(), 2)} == possible
    assert all(exists(row) and list(row) == list(levels) for row in rows)


def test_the_plan_has_every_fault_at_every_strength(plans: tuple[list[Cell], list[Cell]]) -> None:
    """With each data set, and each partition, for each seed of the plan."""
    cells, _ = plans
    for seed in {cell.seed for cell in cells}:
        own = [cell for cell in cells if cell.seed == seed]
        assert {(cell.fault, cell.strength) for cell in own if not cell.clean} == set(variants())
        for kind, strength in variants():
            met = {cell.problem for cell in own if (cell.fault, cell.strength) == (kind, strength)}
            assert met == {name for name in PROBLEMS if any(_exists(kind, strength, name))}
    assert len(set(cells)) == len(cells)
    assert not any(why_not(cell) for cell in cells)
    assert {kind for kind, _ in variants()} == set(BY_KIND)


def _exists(kind: str, strength: str, problem: str) -> list[bool]:
    bad = "0" if BY_KIND[kind].on_server else "1"
    return [not why_not(Cell(problem, "iid", 10, 1.0, kind, strength, bad))]


def test_the_plan_has_two_hundred_clean_runs_on_reserved_data(plans: tuple[list[Cell], list[Cell]]) -> None:
    """The most one-sided and the natural clients included."""
    clean = [cell for cell in plans[0] if cell.clean and PROBLEMS[cell.problem].reserved]
    assert len(clean) >= 200
    assert {"dirichlet-0.1", "natural"} <= {cell.partition for cell in clean}


def test_a_plan_that_is_cut_short_has_measured_each_claim(plans: tuple[list[Cell], list[Cell]]) -> None:
    """Among the first hundred are loud ones of whole and of half cohorts, quiet and clean runs, the clean ones on each
    reserved data set."""
    beginning = plans[0][:100]
    assert {cell.problem for cell in beginning if cell.clean} >= {"fashion", "smartwatch", "sentiment"}
    assert {"label-noise", "backdoor", "sign-flip", "zero-update"} <= {cell.fault for cell in beginning}
    assert sum(cell.clean for cell in beginning) >= 40
    asked = [cell for cell in beginning if cell.fault in LOUD and cell.clients >= 30 and cell.from_round == 5]
    assert min(sum(cell.share == share for cell in asked) for share in (0.5, 1.0)) >= 10
    copied = [cell for cell in beginning if cell.fault == "duplicate" and cell.clients >= 30 and cell.from_round == 5]
    assert {cell.strength for cell in copied} == {"default", "noisy"}


def test_a_strength_of_one_fault_is_no_other_faults() -> None:
    """A copy has a little noise, a flip a third of the classes; anything else with these does not exist."""
    assert Cell(fault="duplicate", strength="noisy", bad="1").strength_value() == 0.01
    assert Cell(fault="label-flip", strength="third", bad="1").strength_value() == pytest.approx(1 / 3)
    for fault, strength in (("label-flip", "noisy"), ("duplicate", "third"), ("sign-flip", "noisy")):
        assert strength in why_not(Cell(fault=fault, strength=strength, bad="1"))


def test_a_cell_is_found_by_its_key(plans: tuple[list[Cell], list[Cell]]) -> None:
    """Which is all that is kept of it."""
    assert [Cell.from_key(cell.key) for cell in plans[0]] == plans[0]


def test_tuning_refuses_what_is_reserved(plans: tuple[list[Cell], list[Cell]]) -> None:
    """Reserved data sets and odd seeds are an error, and the tuning plan has none of them."""
    _, cells = plans
    assert cells
    assert not any(cell.reserved for cell in cells)
    assert {cell.problem for cell in cells} == {"digits", "synthetic", "mnist", "shakespeare"}
    for cell in (Cell("fashion"), Cell("smartwatch"), Cell("sentiment"), Cell("digits", seed=3)):
        with pytest.raises(FedvitalsError, match="kept for the final measurement"):
            check_tuning(cell)
    check_tuning(Cell("digits", seed=2))


def test_without_data_digits_and_synthetic_are_played() -> None:
    """What is missing is named."""
    assert {cell.problem for cell in planned(tuning=True)} == {"digits", "synthetic"}
    assert sum("in the data folder" in reason for reason in omitted()) == 5


def test_the_quick_slice_has_every_fault_and_clean_runs() -> None:
    """On what is always there, and on nothing reserved."""
    cells = quick()
    assert {cell.fault for cell in cells} == {*BY_KIND, "none"}
    assert not any(cell.reserved or PROBLEMS[cell.problem].file for cell in cells)


def test_every_combination_exists_or_has_a_reason() -> None:
    """Nothing is left out in silence: what exists and what is omitted make up all."""
    cells = list(full_cross())
    server = sum(why_not(cell).startswith("a fault of the server") for cell in cells)
    kept = sum(not why_not(cell) and not PROBLEMS[cell.problem].missing for cell in cells)
    reasons = {reason: count for reason, count in omitted().items() if not reason.startswith("no half")}
    assert kept + sum(reasons.values()) + server == len(cells)
    assert kept > 1000
