"""FL101, FL102, FL103: clients that raise, fall silent, or are missing again and again."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from charted import Clock, found, looped, model, trained

from fedvitals.run import Run
from fedvitals.vocabulary import Severity


def failing(missing: Callable[[int, int], bool], rounds: int = 12, clients: int = 6) -> Callable[[Run, Clock], None]:
    """A loop whose clients raise where `missing(round, client)` says so."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(rounds):
            with run.round(number, model=model()) as rnd:
                for client in range(clients):
                    with suppress(RuntimeError), rnd.client(client, samples=10) as c:
                        clock.go_on(1.0)
                        if missing(number, client):
                            raise RuntimeError(f"disk {client} of round {number} is full")
                        c.submit(model(client + 1).state_dict(), loss=1.0)

    return loop


def test_one_cause_at_several_clients_is_one_finding(tmp_path: Path) -> None:
    """With what each client had of it, the line that raised, and the traceback."""
    chart = looped(tmp_path, failing(lambda number, client: client in (1, 4) and number in (2, 3)))
    (one,) = found(chart, "FL101")
    assert (one.clients, one.rounds) == (("1", "4"), (2, 3))
    assert one.evidence["per_client"] == {"1": [2, 12], "4": [2, 12]}
    assert "test_client_failures_found.py" in one.evidence["at"]
    assert "RuntimeError: disk 1 of round 2 is full" in one.evidence["traceback"]
    assert "in what they share" in one.why


def test_two_causes_are_two_findings(tmp_path: Path) -> None:
    """Each with its own clients."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0) as rnd:
            for client, error in (("a", KeyError("label")), ("b", OSError("no such file"))):
                with suppress(Exception), rnd.client(client):
                    raise error

    assert {one.clients for one in found(looped(tmp_path, loop), "FL101")} == {("a",), ("b",)}


def test_silence_says_what_it_cost(tmp_path: Path) -> None:
    """How long each was waited for, and the share of the rounds; an exception named after a timeout is one too."""
    chart = trained(tmp_path, faults=[{"kind": "timeout", "clients": [2], "strength": 0.9}])
    (one,) = found(chart, "FL102")
    assert one.clients == ("2",)
    assert one.evidence["waited_s"] == 0.9
    assert one.evidence["share_of_rounds"] > 0.9
    assert found(chart, "FL101") == ()


def test_an_exception_of_a_timeout_is_a_timeout(tmp_path: Path) -> None:
    """Whatever library gives it."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0) as rnd, suppress(TimeoutError), rnd.client("far"):
            raise TimeoutError("no route")

    chart = looped(tmp_path, loop)
    assert [one.clients for one in found(chart, "FL102")] == [("far",)]
    assert found(chart, "FL101") == ()


def test_a_rhythm_is_told(tmp_path: Path) -> None:
    """Every fourth round the same client is missing, and nobody else ever."""
    chart = looped(tmp_path, failing(lambda number, client: client == 2 and number % 4 == 1, rounds=20))
    (one,) = found(chart, "FL103")
    assert one.clients == ("2",)
    assert one.evidence["every_rounds"] == 4
    assert "every 4 rounds" in one.why


def test_missing_from_a_round_on(tmp_path: Path) -> None:
    """The round from which it is always missing."""
    chart = looped(tmp_path, failing(lambda number, client: client == 5 and number >= 7))
    (one,) = found(chart, "FL103")
    assert (one.clients, one.evidence["from_round"], one.rounds) == (("5",), 7, (7, 8, 9, 10, 11))


def test_failures_by_chance_are_no_pattern(tmp_path: Path) -> None:
    """When everybody fails now and then, nobody is named."""
    chart = looped(tmp_path, failing(lambda number, client: (number * 7 + client * 5) % 6 == 0))
    assert found(chart, "FL101")
    assert found(chart, "FL103") == ()


def test_a_client_that_is_never_seen_again(tmp_path: Path) -> None:
    """It was there in every round until it was not: worth knowing, no more; nobody says whether it was asked."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(14):
            with run.round(number) as rnd:
                for client in "abcdef" if number < 6 else "abcde":
                    with rnd.client(client):
                        clock.go_on(1.0)

    (one,) = found(looped(tmp_path, loop), "FL103")
    assert (one.clients, one.severity) == (("f",), Severity.INFO)
