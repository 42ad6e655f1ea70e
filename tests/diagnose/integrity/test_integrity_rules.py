"""Faults of updates and labels, planted in real runs, are found at the right client; clean runs accuse nobody."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

import fedvitals
from fedvitals.diagnose import Diagnosis, diagnose
from fedvitals.train.engine import train
from fedvitals.train.job import Job
from fedvitals.vocabulary import Severity

BAD = ["4", "11"]
FAULTS = {
    "sign-flip": "FL601",
    "scaled-update": "FL602",
    "gaussian-update": "FL603",
    "zero-update": "FL604",
    "stale-update": "FL605",
    "label-flip": "FL607",
}


def _diagnosed(folder: str, **job: Any) -> Diagnosis:
    data = {"source": "digits", "clients": 20, "partition": "dirichlet", "alpha": job.pop("alpha", 1.0)}
    whole = {"data": data, "train": {"rounds": 14, "clients_per_round": 20}, "seed": 2, **job}
    settings = fedvitals.Settings(dir=folder)
    result = train(Job.from_dict(whole), settings=settings)
    assert result.run_id is not None
    reader = fedvitals.open_store(settings).open(result.run_id)
    try:
        return diagnose(reader, ignore=["FL2", "FL3", "FL8", "FL9"])
    finally:
        reader.close()


@pytest.mark.parametrize("kind", FAULTS)
def test_a_bad_client_is_found(kind: str, tmp_path: Any) -> None:
    """By its own rule, with nobody beside it, and with numbers."""
    fault = {"kind": kind, "clients": [int(one) for one in BAD], "from_round": 5}
    found = _diagnosed(str(tmp_path), faults=[fault])
    accused = [one for one in found.findings if one.severity is not Severity.INFO and one.clients]
    assert FAULTS[kind] in {one.code for one in accused}
    assert {client for one in accused for client in one.clients} == set(BAD)
    assert all(min(one.rounds) >= 5 for one in accused)
    assert any(figure.isdigit() for one in accused for figure in one.why)


def test_several_are_found_that_alone_would_not_be(tmp_path: Any) -> None:
    """Six of thirty with 30% wrong labels, after a few epochs: the finding says that it takes all of them together."""
    bad = {"1", "4", "7", "9", "12", "15"}
    job = Job.from_dict(
        {
            "data": {"source": "digits", "clients": 30},
            "train": {"rounds": 16, "clients_per_round": 30, "epochs": 2},
            "faults": [{"kind": "label-noise", "clients": [int(one) for one in bad], "from_round": 5}],
            "seed": 2,
        }
    )
    settings = fedvitals.Settings(dir=str(tmp_path))
    train(job, settings=settings)
    with closing(fedvitals.open_store(settings).open("last")) as reader:
        found = [one for one in diagnose(reader, select=["FL6", "FL5"]).findings if one.severity is not Severity.INFO]
    named = {client for one in found for client in one.clients}
    assert len(named) >= 3
    assert named <= bad
    assert all("several clients of this run stand out together" in one.why for one in found)


@pytest.mark.parametrize("noise", [0.0, 0.01])
def test_a_copier_is_found_with_whom_it_copied(noise: float, tmp_path: Any) -> None:
    """Exactly or with a little noise: the copier alone is named, its victims are in the evidence."""
    fault = {"kind": "duplicate", "clients": [4], "from_round": 5, "strength": noise}
    found = _diagnosed(str(tmp_path), faults=[fault])
    (one,) = [one for one in found.findings if one.code == "FL606"]
    assert one.clients == ("4",)
    assert one.evidence["exact"] is (noise == 0.0)
    assert len(one.evidence["partners"]) >= 2


@pytest.mark.parametrize("alpha", [100.0, 0.3, 0.1])
def test_nobody_is_accused_without_a_fault(alpha: float, tmp_path: Any) -> None:
    """However one-sided the clients' classes are."""
    found = _diagnosed(str(tmp_path), alpha=alpha)
    assert [one for one in found.findings if one.severity is not Severity.INFO] == []


def test_a_self_reported_number_is_called_so(tmp_path: Any) -> None:
    """At level summary an accusation says that it rests on the clients' own word."""
    fault = {"kind": "sign-flip", "clients": [4], "from_round": 5}
    found = _diagnosed(str(tmp_path), faults=[fault], observe={"level": "summary"})
    (one,) = [one for one in found.findings if one.code == "FL601"]
    assert one.evidence["self_reported"] is True


def test_sums_alone_show_no_client(tmp_path: Any) -> None:
    """At level sealed the rules about updates are not observable, and say so."""
    found = _diagnosed(str(tmp_path), observe={"level": "sealed"})
    assert {"FL601", "FL604", "FL606", "FL608"} <= set(found.not_observable)


def test_three_clients_are_too_few_to_tell(tmp_path: Any) -> None:
    """With three of them no rule about updates calls a run fine in which one sends the mirror image."""
    found = _diagnosed(
        str(tmp_path),
        data={"source": "digits", "clients": 3},
        train={"rounds": 9, "clients_per_round": 3},
        faults=[{"kind": "sign-flip", "clients": [1], "from_round": 5}],
    )
    blind = {"FL506", "FL507", "FL601", "FL602", "FL603", "FL607", "FL608"}
    assert {found.not_observable.get(code) for code in blind} == {
        "no round has 4 clients whose updates can be compared"
    }
    assert not blind & set(found.looked)
