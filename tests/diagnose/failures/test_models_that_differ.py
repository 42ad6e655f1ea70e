"""FL107, FL108: shapes and rows that do not fit, and clients that did not receive the same model."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import torch
from charted import Clock, diagnosed, found, looped, model

from fedvitals.diagnose.folding import fold
from fedvitals.diagnose.registry import RULES
from fedvitals.run import Run
from fedvitals.vocabulary import Grade


def test_a_mismatch_names_the_layer(tmp_path: Path) -> None:
    """A client whose last layer has another number of classes: which layer, which shapes, which client."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(3):
            with run.round(number, model=model()) as rnd:
                for client in range(3):
                    with rnd.client(client, samples=20) as c:
                        c.submit(model(outputs=7 if client == 1 else 3).state_dict())

    (one,) = found(looped(tmp_path, loop), "FL107")
    assert (one.clients, one.rounds) == (("1",), (0, 1, 2))
    assert one.evidence["differing"]["2.weight"] == ["(7, 5)", "(3, 5)"]


def test_an_exception_about_shapes_is_explained_and_not_merely_raised(tmp_path: Path) -> None:
    """Real words of torch; and rows that stand out are named with it."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0, model=model()) as rnd:
            for client, features in ((0, 4), (1, 9), (2, 4)):
                with suppress(RuntimeError), rnd.client(client, samples=500 if client == 1 else 20 + client) as c:
                    model()(torch.zeros(2, features))
                    c.submit(model().state_dict())

    chart = looped(tmp_path, loop)
    (one,) = found(chart, "FL107", "FL101")
    assert (one.code, one.clients) == ("FL107", ("1",))
    assert "500 rows, the others 20 to 22" in one.why


def test_clients_without_rows(tmp_path: Path) -> None:
    """They took part and had nothing to learn from."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0, model=model()) as rnd:
            for client in range(3):
                with rnd.client(client, samples=0 if client == 2 else 5) as c:
                    c.submit(model().state_dict())

    (one,) = found(looped(tmp_path, loop), "FL107")
    assert one.clients == ("2",)


def receiving(seed_of: Callable[[int, int], int]) -> Callable[[Run, Clock], None]:
    """Clients that train on the model that `seed_of(round, client)` makes."""

    def loop(run: Run, clock: Clock) -> None:
        for number in range(4):
            with run.round(number, model=model(number)) as rnd:
                for client in range(4):
                    with rnd.client(client) as c:
                        c.watch(model(seed_of(number, client)))
                        c.submit(model(99).state_dict())

    return loop


def test_one_client_with_an_old_model(tmp_path: Path) -> None:
    """Who, when, and that its model was an earlier one."""
    chart = looped(tmp_path, receiving(lambda number, client: 0 if client == 2 else number))
    (one,) = found(chart, "FL108")
    assert (one.clients, one.rounds) == (("2",), (1, 2, 3))
    assert one.evidence["of_earlier_version"] == 3


def test_every_client_with_its_own(tmp_path: Path) -> None:
    """Nothing is shared: all of them are named."""
    (one,) = found(looped(tmp_path, receiving(lambda number, client: 100 * number + client)), "FL108")
    assert one.clients == ("0", "1", "2", "3")
    assert "no two clients" in one.why


def test_the_same_model_for_all_is_silent(tmp_path: Path) -> None:
    """And where nobody looked, nothing is said."""
    assert found(looped(tmp_path / "a", receiving(lambda number, client: number)), "FL108") == ()

    def unseen(run: Run, clock: Clock) -> None:
        with run.round(0) as rnd, rnd.client("a"):
            clock.go_on(1.0)

    assert "FL108" in diagnosed(looped(tmp_path / "b", unseen), "FL108").not_observable


def test_asynchronous_clients_are_compared_by_version(tmp_path: Path) -> None:
    """Two clients of one round may rightly train on two versions."""

    def loop(run: Run, clock: Clock) -> None:
        with run.round(0):
            for seed in range(3):
                version = run.version(model(seed))
                for client in range(3):
                    with run.client(client, base=version) as c:
                        c.watch(model(seed))
                        c.submit(model(9).state_dict())

    chart = looped(tmp_path, loop)
    assert len(set(chart.participations.base_version.tolist())) == 3
    assert found(chart, "FL108") == ()


def test_who_trains_on_another_model_is_accused_of_nothing_else(tmp_path: Path) -> None:
    """What its updates look like then stands under the cause; what another client does stands beside it."""
    chart = looped(tmp_path, receiving(lambda number, client: 0 if client == 2 else number))
    (cause,) = found(chart, "FL108")
    own = [replace(cause, code=code, grade=Grade.ACCUSED) for code in ("FL409", "FL412", "FL413", "FL414", "FL602")]
    other = replace(own[-1], clients=("3",))
    first, second = fold([*own, other, cause], {rule.code: rule.explains for rule in RULES})
    assert (first.code, second) == ("FL108", other)
    assert {one.code for one in first.symptoms} == {one.code for one in own}
