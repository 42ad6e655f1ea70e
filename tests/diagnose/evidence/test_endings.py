"""What a client is noticed for ends where it looks as before again, whatever remembers it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from charted import found, trained

from fedvitals.diagnose.evidence.course import FEATURES, Course
from fedvitals.diagnose.evidence.endings import until_the_end
from fedvitals.diagnose.evidence.measures import NAMES

CHANGES = {"train.rounds": 22, "train.clients_per_round": 20, "train.epochs": 3, "seed": 2}


@pytest.mark.parametrize(("until", "last"), [(12, 12), (None, 21)])
@pytest.mark.parametrize(("kind", "code"), [("gaussian-update", "FL603"), ("swapped-features", "FL506")])
def test_a_finding_ends_with_its_fault(tmp_path: Path, kind: str, code: str, until: int | None, last: int) -> None:
    """Where it was mended, and at the run's end where it was not."""
    fault = {"kind": kind, "clients": [4, 11], "from_round": 6, "until_round": until}
    chart = trained(tmp_path, CHANGES, [{name: value for name, value in fault.items() if value is not None}])
    told = [one for one in found(chart, code) if "4" in one.clients]
    assert [max(one.rounds) for one in told] == [last]


def _course(strange: range) -> Course:
    """Twenty participations of one client, of which these are strange; what remembers is so to the end."""
    features = np.random.default_rng(0).normal(size=(20, len(FEATURES))).astype(np.float32)
    features[strange.start : strange.stop, FEATURES.index("cosine.now")] -= 20
    features[strange.start : strange.stop, FEATURES.index("loss.now")] += 20
    features[strange.start :, FEATURES.index("own_mean.now")] -= 40
    features[3, FEATURES.index("norm.now")] = np.nan
    return Course(features, np.zeros((20, len(NAMES))), np.arange(20))


def test_only_what_a_participation_shows_by_itself_counts() -> None:
    """Until its last strange one; with one left after that, nobody can tell yet that it is over."""
    rows, noticed = np.arange(20), np.arange(8, 20)
    assert until_the_end(_course(range(6, 12)), rows, noticed, peak=10).tolist() == [8, 9, 10, 11]
    assert until_the_end(_course(range(6, 19)), rows, noticed, peak=10).tolist() == noticed.tolist()
    assert until_the_end(_course(range(6, 20)), rows, noticed, peak=19).tolist() == noticed.tolist()


def test_who_was_noticed_too_late_was_noticed_once() -> None:
    """When it was over already; and a client of few participations from the first on."""
    assert until_the_end(_course(range(6, 10)), np.arange(20), np.arange(11, 15), peak=8).tolist() == [11]
    assert until_the_end(_course(range(1)), np.arange(2), np.arange(1), peak=0).tolist() == [0]
