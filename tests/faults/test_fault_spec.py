"""Faults as a job says them, and the registry that makes them."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from fedvitals.errors import JobError
from fedvitals.faults.fault import DataFault, ServerFault, UpdateFault, WorkFault
from fedvitals.faults.registry import BY_KIND, FAULTS, kinds, make, table
from fedvitals.faults.spec import MOST, FaultSpec, refuse_duplicates

EXPECTED = {
    "label-flip", "label-noise", "sign-flip", "scaled-update", "gaussian-update", "zero-update", "stale-update",
    "duplicate", "nan-update", "nan-batch", "exploding-lr", "tiny-lr", "frozen-layer", "unnormalised-input",
    "swapped-features", "backdoor", "missing-zero-grad", "crash", "timeout", "slow-compute", "slow-link", "slow-loader",
    "slow-aggregation", "memory-leak", "dropped-last-batch",
}  # fmt: skip


def _spec(kind: str, **more: Any) -> FaultSpec:
    return FaultSpec(kind, () if BY_KIND[kind].on_server else ("1",), **more)


def test_all_faults_are_there_once() -> None:
    """25 kinds, each with a sentence, a finding's code and a stage that it strikes."""
    assert set(kinds()) == EXPECTED
    assert len(kinds()) == len(FAULTS) == len(EXPECTED)
    for kind, imitates, finding, strength in table():
        assert imitates.endswith(".")
        assert finding.startswith("FL")
        assert len(finding) == 5
        assert strength is None or BY_KIND[kind].lowest <= strength <= BY_KIND[kind].highest
        assert strength is None or BY_KIND[kind].measures
        assert issubclass(BY_KIND[kind], DataFault | UpdateFault | WorkFault | ServerFault)


def test_the_registry_needs_no_torch() -> None:
    """Listing and checking faults is cheap."""
    code = (
        "import sys, fedvitals.faults.registry as r; r.table(); print('torch' in sys.modules, 'numpy' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_the_default_strength_is_used_unless_another_is_given() -> None:
    """A spec without strength takes the fault's own."""
    assert make(_spec("scaled-update")).strength == 5.0
    assert make(_spec("scaled-update", strength=2)).strength == 2.0


@pytest.mark.parametrize(
    ("kind", "more", "words"),
    [
        ("label-flip", {"strength": 1.5}, "right is a number from 0 to 1"),
        ("stale-update", {"strength": 1.5}, "right is a whole number from 1 to 100"),
        ("stale-update", {"strength": 0}, "right is a whole number from 1 to 100"),
        ("frozen-layer", {"strength": -1}, "right is a whole number from 0"),
        ("slow-compute", {"strength": 0.5}, r"factor on its computing time\); right is a number from 1"),
        ("crash", {"strength": 1}, "crash takes no strength"),
        ("slow-aggregation", {"share": 0.5}, "strikes the server; leave out clients and share"),
    ],
)
def test_impossible_strengths_and_targets(kind: str, more: dict[str, Any], words: str) -> None:
    """The error says what the strength measures and what is right."""
    with pytest.raises(JobError, match=words):
        make(_spec(kind, **more))


def test_an_unknown_kind_names_the_nearest() -> None:
    """A slip of the pen is answered with the word that was meant."""
    with pytest.raises(JobError, match="there is no fault 'sign-flp'; did you mean 'sign-flip'"):
        make(FaultSpec("sign-flp", ("1",)))


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"share": 0}, "share = 0 is out of range"),
        ({"share": 1.1}, "share = 1.1 is out of range"),
        ({"share": "half"}, "should be a number"),
        ({"share": True}, "should be a number"),
        ({"strength": float("nan")}, "is not a finite number"),
        ({"strength": 10**400}, "is not a finite number"),
        ({"from_round": -1}, "from_round = -1 is out of range"),
        ({"from_round": 1.5}, "should be a whole number"),
        ({"from_round": 5, "until_round": 4}, "until_round = 4 lies before from_round = 5"),
        ({"until_round": True}, "should be a whole number"),
        ({"clients": "3"}, "should be a list of client ids"),
        ({"clients": [True]}, "should be a list of client ids"),
        ({"clients": [3, "3"]}, "names a client twice"),
        ({"clients": [10**5000]}, "far too many characters"),
        ({"clients": [""]}, "by no or far too many characters"),
        ({"of": "pixels"}, "is not one of classes, rows"),
        ({"kind": 3}, "should be the name of a fault"),
    ],
)
def test_a_spec_that_cannot_be(given: dict[str, Any], words: str) -> None:
    """Each impossible value is refused by name."""
    with pytest.raises(JobError, match=words):
        FaultSpec(**{"kind": "crash", **given})


def test_rounds_are_both_included() -> None:
    """A fault from 3 until 5 strikes in 3, 4 and 5; without an end it goes on."""
    assert [r for r in range(10) if FaultSpec("crash", from_round=3, until_round=5).strikes_in(r)] == [3, 4, 5]
    assert FaultSpec("crash", from_round=3).strikes_in(10**9)


@pytest.mark.parametrize(
    ("one", "other", "clash"),
    [
        ({"clients": [1]}, {"clients": [1, 2]}, True),
        ({"clients": [1]}, {"clients": [2]}, False),
        ({"clients": [1], "until_round": 3}, {"clients": [1], "from_round": 3}, True),
        ({"clients": [1], "until_round": 3}, {"clients": [1], "from_round": 4}, False),
        ({"clients": [1], "from_round": 4}, {"clients": [1], "until_round": 3}, False),
        ({"share": 0.1}, {"clients": [1]}, True),
        ({"share": 0.1}, {"share": 0.2}, True),
        ({"share": 0.1}, {"share": 0.1, "kind": "timeout"}, False),
    ],
)
def test_the_same_fault_twice(one: dict[str, Any], other: dict[str, Any], clash: bool) -> None:
    """Two of a kind clash when they could strike one client in one round."""
    specs = [FaultSpec(**{"kind": "crash", **one}), FaultSpec(**{"kind": "crash", **other})]
    assert specs[0].overlaps(specs[1]) is specs[1].overlaps(specs[0]) is clash
    if clash:
        with pytest.raises(JobError, match="number 1 and number 2 are both 'crash'"):
            refuse_duplicates(specs)
    else:
        refuse_duplicates(specs)


def test_far_too_many_faults() -> None:
    """A file of tens of thousands of faults is refused at once."""
    with pytest.raises(JobError, match="at most 1,000"):
        refuse_duplicates([FaultSpec("crash", (str(index),)) for index in range(MOST + 1)])
