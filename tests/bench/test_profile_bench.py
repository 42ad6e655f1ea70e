"""The bench of the profile: it plays what it says, and a wrong answer would show."""

from __future__ import annotations

from fedvitals.bench import profile as bench
from fedvitals.bench.profile import LEAK, PHASE, WAYS, Case, Judged


def test_every_fault_is_played_on_every_way() -> None:
    """In a hundred runs five times each, and every second time with other clients' rows."""
    cases = list(bench._cases([*PHASE, LEAK], 100))
    played = {(str(case.way), case.fault) for case in cases}
    assert len(played) == len(WAYS) * (len(PHASE) + 1)
    assert len({case.number for case in cases}) == 100
    assert {case.partition for case in cases} == {"iid", "dirichlet"}


def test_a_run_is_judged_against_what_was_injected() -> None:
    """On the virtual clock: the slow client and its phase, and nobody where nothing is slow."""
    virtual = WAYS[0]
    slow = bench._judged(Case(7, virtual, "iid", "slow-loader"))
    assert (slow.right, slow.client_right, slow.accused) == (True, True, "7")
    even = bench._judged(Case(7, virtual, "iid", None))
    assert even.accused is None
    assert even.unexplained == 0


def test_wrong_answers_count() -> None:
    """Half right is half, not met; one accused among the even ones is too many."""
    case = Case(0, WAYS[0], "iid", "slow-link")
    judged = [Judged(case, right, right, None, 0.0) for right in (True, False)]
    rows = {(row.case.split(" (")[0], row.measure): row for row in bench._found(judged, quick=False)}
    assert rows["all", "right bottleneck"].value == 0.5
    assert rows["all", "right bottleneck"].met is False
    assert rows["with a client", "right client"].met is False
    accused, grows = bench._accused([Judged(case, False, None, "3", 0.0, grows=True)], quick=False)
    assert (accused.met, grows.met) == (False, False)
