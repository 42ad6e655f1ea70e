"""FL301, FL302, FL303: slow links, broken transfers, updates of another size."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from charted import Clock, diagnosed, found, looped, model, trained

from fedvitals.run import Run
from fedvitals.vocabulary import Severity


def sending(upload_s: Callable[[int, int], float], size: Callable[[int, int], int]) -> Callable[[Run, Clock], None]:
    """Six clients over ten rounds that compute for a second and then send."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(10):
            with run.round(number) as rnd:
                for client in range(6):
                    with rnd.client(client) as c:
                        with c.phase("train"):
                            clock.go_on(1.0)
                        with c.phase("upload", bytes=size(number, client)):
                            clock.go_on(upload_s(number, client))

    return loop


def test_one_slow_link(tmp_path: Path) -> None:
    """Its seconds, its rate and the others' seconds, from the round in which it became slow."""
    chart = looped(tmp_path, sending(lambda n, client: 8.0 if client == 4 and n >= 3 else 0.2, lambda n, client: 4000))
    (one,) = found(chart, "FL301")
    assert (one.clients, one.rounds, one.severity) == (("4",), tuple(range(3, 10)), Severity.WARNING)
    assert one.evidence["transfer_s"] == pytest.approx(8.0)
    assert "500 B/s" in one.why


def test_everybody_bound_by_the_network(tmp_path: Path) -> None:
    """Is worth knowing; nobody is accused."""
    (one,) = found(looped(tmp_path, sending(lambda n, client: 3.0, lambda n, client: 4000)), "FL301")
    assert (one.clients, one.severity) == ((), Severity.INFO)


def test_transfers_that_nobody_timed(tmp_path: Path) -> None:
    """Cannot be seen."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0) as rnd, rnd.client("a") as c, c.phase("train"):
            clock.go_on(1.0)

    assert "FL301" in diagnosed(looped(tmp_path, loop), "FL301").not_observable


def test_a_broken_transfer(tmp_path: Path) -> None:
    """By its stage or by its exception; not a client that raised."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0) as rnd:
            with suppress(ValueError), rnd.client("a") as c, c.phase("upload"):
                raise ValueError("message larger than max")
            with suppress(ConnectionResetError), rnd.client("b"):
                raise ConnectionResetError("reset by peer")

    chart = looped(tmp_path, loop)
    assert {one.clients for one in found(chart, "FL302")} == {("a",), ("b",)}
    assert found(chart, "FL101") == ()


def test_records_that_cannot_be_read(tmp_path: Path) -> None:
    """Bytes that are no telemetry are the sender's."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0, model=model()) as rnd:
            rnd.ticket("far")
            rnd.merge(b"rubbish", client="far")

    chart = looped(tmp_path, loop)
    (one,) = found(chart, "FL302", "FL901")
    assert (one.code, one.clients, one.evidence["kind"]) == ("FL302", ("far",), "bad telemetry")


def test_an_update_of_another_size(tmp_path: Path) -> None:
    """Cut off in two rounds: its bytes, the others' and its own otherwise."""
    chart = looped(
        tmp_path, sending(lambda n, c: 0.1, lambda n, c: 900 if c == 2 and n in (4, 8) else 4000 + 100 * n + c)
    )
    (one,) = found(chart, "FL303")
    assert (one.clients, one.rounds) == (("2",), (4, 8))
    assert one.evidence["bytes"] == 900


def test_sizes_that_vary_by_nature(tmp_path: Path) -> None:
    """A codec whose sizes spread over a factor of four accuses nobody."""
    chart = looped(tmp_path, sending(lambda n, c: 0.1, lambda n, c: 1000 * (1 + (7 * n + 5 * c) % 4)))
    assert found(chart, "FL303") == ()


def test_everybodys_size_changed(tmp_path: Path) -> None:
    """Another codec from some round on is worth knowing."""
    chart = looped(tmp_path, sending(lambda n, c: 0.1, lambda n, c: 4000 if n < 5 else 700))
    (one,) = found(chart, "FL303")
    assert (one.severity, one.evidence["from_round"]) == (Severity.INFO, 5)


MOBILE = {"network.profile": "mobile", "server.deadline_s": 5.0, "train.rounds": 12}
SPARSE = {"codec.up": "feedback(topk:0.1 | quantize:8 | entropy)"}


def test_sizes_that_were_chosen_by_the_link(tmp_path: Path) -> None:
    """With `codec.adapt` a client on a slow link sends less of its update; that is no update of another size."""
    chart = trained(tmp_path, MOBILE | SPARSE | {"codec.adapt": True})
    table = chart.participations
    sizes = table.wire_bytes_up[table.share > 0]
    assert sizes.max() > 3 * sizes.min()
    assert found(chart, "FL303") == ()
    assert "link" in diagnosed(chart, "FL303").not_observable["FL303"]


def test_who_compresses_is_told_what_else_there_is(tmp_path: Path) -> None:
    """The advice of FL301 goes by what the run does already."""
    told = {}
    for name, codec in (("plain", {}), ("sparse", SPARSE)):
        chart = trained(tmp_path / name, {**MOBILE, **codec}, [{"kind": "slow-link", "clients": [3]}])
        told[name] = {action.text for one in found(chart, "FL301") for action in one.next}
    assert any("quantize:8" in text for text in told["plain"])
    assert any("codec.down" in text for text in told["sparse"])
    assert not any("quantize:8" in text for text in told["sparse"])
