"""FL906: one id for two clients, one number for two rounds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from charted import Clock, found, looped, model, trained

from fedvitals.diagnose.chart import Chart
from fedvitals.run import Run
from fedvitals.vocabulary import Grade, Severity

ROUNDS = 6


def _trained(net: Any) -> dict[str, torch.Tensor]:
    return {name: value + 0.05 * torch.randn(value.shape) for name, value in net.state_dict().items()}


def _loop(folder: Path, ids: Callable[[int], Sequence[tuple[str, int]]], numbers: Sequence[int] = ()) -> Chart:
    """Clients of each round with their rows; rounds are numbered by `numbers`."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        for place, number in enumerate(numbers or range(ROUNDS)):
            with run.round(number, model=model(place)) as rnd:
                for name, rows in ids(place):
                    with rnd.client(name, samples=rows) as c:
                        c.submit(_trained(model(place)), loss=1.0)

    return looped(folder, loop)


OTHERS = [("a", 10), ("b", 10), ("c", 10)]


@pytest.mark.parametrize("rows", [10, 25])
def test_two_clients_under_one_id(tmp_path: Path, rows: int) -> None:
    """By their rows where these differ, else because it is always the same id."""
    (one,) = found(_loop(tmp_path, lambda _: [*OTHERS, ("a", rows)]), "FL906")
    assert (one.severity, one.grade, one.clients) == (Severity.WARNING, Grade.CERTAIN, ("a",))
    assert one.rounds == tuple(range(ROUNDS))
    assert one.evidence["a"] == {"rounds": ROUNDS, "of": ROUNDS, "rows": [] if rows == 10 else [10, 25]}


def test_clients_drawn_with_replacement(tmp_path: Path) -> None:
    """Another one comes twice in each round: that is told, and is no alarm."""
    (one,) = found(_loop(tmp_path, lambda place: [*OTHERS, OTHERS[place % 3]]), "FL906")
    assert (one.severity, set(one.clients)) == (Severity.INFO, {"a", "b", "c"})
    assert "drawn twice" in one.why


@pytest.mark.parametrize(("numbers", "again"), [((0, 1, 2, 0, 1, 2), (0, 1, 2)), ((0, 0, 0, 0), (0,)), ((4, 9, 2), ())])
def test_numbers_of_rounds_that_repeat(tmp_path: Path, numbers: Sequence[int], again: tuple[int, ...]) -> None:
    """A loop that is run twice, and a number that stands still; that some are left out is nobody's business. Nobody is
    told to have come twice in one round."""
    told = found(_loop(tmp_path, lambda _: OTHERS, numbers), "FL906")
    assert [(one.rounds, one.clients, one.severity) for one in told] == ([(again, (), Severity.WARNING)] * bool(again))
    assert all(one.evidence == {"numbers": len(again), "rounds": len(numbers)} for one in told)


def test_who_tries_again_is_one_client(tmp_path: Path) -> None:
    """After a failure of its own, after an update that was left out, and in a round that failed as a whole; and who
    comes a second time without an update, as to be evaluated, was trained once."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(ROUNDS):
            for go in range(1 + (number == 3)):
                with suppress(OSError), run.round(number, model=model(number)) as rnd:
                    with suppress(OSError), rnd.client("a", samples=9) as c:
                        raise OSError("the disk")
                    for name in "abc":
                        with rnd.client(name, samples=10) as c:
                            c.submit(_trained(model()), loss=1.0)
                        with rnd.client(name) as c, c.phase("evaluate"):
                            pass
                    rnd.rejected(["c"])
                    with rnd.client("c", samples=12) as c:
                        c.submit(_trained(model()), loss=1.0)
                    if number == 3 and go == 0:
                        raise OSError("the server's disk")

    assert found(looped(tmp_path, loop), "FL906") == ()


def test_without_rounds_a_client_may_come_twice(tmp_path: Path) -> None:
    """In a loop of versions, whose rounds are only there for evaluations, and in the engine's own."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(ROUNDS):
            version = run.version(model(number))
            with run.round(number) as rnd:
                rnd.evaluated(loss=1.0)
            for name in "aab":
                with run.client(name, base=version, samples=10) as c:
                    c.submit(_trained(model(number)), loss=1.0)

    assert found(looped(tmp_path / "own", loop), "FL906") == ()
    changes = {"server.mode": "async", "server.concurrency": 8, "server.buffer": 4, "train.rounds": 10}
    assert found(trained(tmp_path / "engine", changes), "FL906") == ()


def test_a_healthy_training_has_none(tmp_path: Path) -> None:
    """Clients that come again in other rounds."""
    assert found(trained(tmp_path, {"train.rounds": 6}), "FL906") == ()


def test_two_sites_that_both_count_from_nought(tmp_path: Path) -> None:
    """All ids come twice in all rounds: that no chance does, though none stands out among them."""
    (one,) = found(_loop(tmp_path, lambda _: [*OTHERS, *OTHERS]), "FL906")
    assert (one.severity, set(one.clients)) == (Severity.WARNING, {"a", "b", "c"})


def test_a_client_that_fails_hides_no_number(tmp_path: Path) -> None:
    """Only a round that failed as a whole may have been begun again."""

    def loop(run: Run, clock: Clock) -> None:
        torch.manual_seed(0)
        for place, number in enumerate((0, 1, 0, 1)):
            with run.round(number, model=model(place)) as rnd:
                for name, rows in OTHERS:
                    with rnd.client(name, samples=rows) as c:
                        c.submit(_trained(model(place)), loss=1.0)
                with suppress(OSError), rnd.client("flaky", samples=10):
                    raise OSError

    (one,) = found(looped(tmp_path, loop), "FL906")
    assert (one.rounds, one.severity) == ((0, 1), Severity.WARNING)
