"""The injector: who is struck when, what the work and the update become, and that it is the same every time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fedvitals.errors import JobError
from fedvitals.faults.fault import DataFault, UpdateFault, WorkFault
from fedvitals.faults.injector import Injector
from fedvitals.faults.registry import BY_KIND
from fedvitals.faults.spec import FaultSpec
from fedvitals.faults.work import LocalWork

CLIENTS = tuple(str(index) for index in range(10))
LAYERS = (("1.weight", (64, 32)), ("1.bias", (64,)), ("3.weight", (10, 64)), ("3.bias", (10,)))


def _injector(*specs: FaultSpec, seed: int = 5, **more: Any) -> Injector:
    return Injector(specs, CLIENTS, seed, trainable_layers=LAYERS, **more)


def _one(kind: str, client: str = "3", **more: Any) -> Injector:
    return _injector(FaultSpec(kind, (client,), **more))


def _work(name: str = "3", round: int = 0, attempt: int = 0) -> LocalWork:
    return LocalWork(int(name), name, attempt, round, lr=0.1)


def _no_rows() -> tuple[Tensor, Tensor]:
    raise AssertionError("these rows were not needed")


def _rows() -> tuple[Tensor, Tensor]:
    return torch.rand(40, 12, generator=torch.Generator().manual_seed(0)), torch.arange(40) % 10


def _changed(work: LocalWork, plain: LocalWork) -> dict[str, object]:
    pairs = {one.name: (getattr(work, one.name), getattr(plain, one.name)) for one in fields(LocalWork)}
    return {name: now for name, (now, before) in pairs.items() if now != before}


PLANS: list[tuple[str, float | None, dict[str, object]]] = [
    ("exploding-lr", None, {"lr": 10.0}),
    ("tiny-lr", None, {"lr": 0.0001}),
    ("frozen-layer", None, {"frozen": (0,)}),
    ("frozen-layer", 3, {"frozen": (3,)}),
    ("missing-zero-grad", None, {"zero_grad": False}),
    ("dropped-last-batch", None, {"drop_last": True}),
    ("crash", None, {"error": "injected fault: client 3 crashed in round 0"}),
    ("timeout", None, {"silent_s": 0.2}),
    ("timeout", 7, {"silent_s": 7.0}),
    ("slow-compute", None, {"compute_factor": 5.0}),
    ("slow-link", None, {"link_factor": 10.0}),
    ("slow-loader", None, {"load_factor": 4.0}),
    ("memory-leak", None, {"leak_bytes": 10_000_000}),
]


@pytest.mark.parametrize(("kind", "strength", "expected"), PLANS, ids=[f"{k} {s}" for k, s, _ in PLANS])
def test_plans_change_what_they_should(kind: str, strength: float | None, expected: dict[str, object]) -> None:
    """Each fault of training or system changes its own entry of the work and no other; no rows are asked for."""
    plain = _work()
    changed = _changed(_one(kind, strength=strength).plan(plain, _no_rows), plain)
    assert changed == {
        name: pytest.approx(value) if type(value) is float else value for name, value in expected.items()
    }
    other = _work("4")
    assert _one(kind, strength=strength).plan(other, _no_rows) is other


def test_every_fault_is_tested_somewhere_as_what_it_is() -> None:
    """Work faults are all in the table above; the others strike data, updates or the server."""
    work = {kind for kind, fault in BY_KIND.items() if issubclass(fault, WorkFault)}
    assert work == {kind for kind, _, _ in PLANS}


@pytest.mark.parametrize("kind", [kind for kind, fault in BY_KIND.items() if issubclass(fault, DataFault)])
def test_spoilt_rows_are_made_once(kind: str) -> None:
    """Rows are asked for the first time only; attempts and rounds get the very same ones; others are left alone."""
    injector, calls = _one(kind, from_round=2), []

    def rows() -> tuple[Tensor, Tensor]:
        calls.append(1)
        return _rows()

    assert injector.plan(_work(round=1), rows).x is None
    first = injector.plan(_work(round=2), rows)
    later = injector.plan(_work(round=9, attempt=4), rows)
    assert len(calls) == 1
    assert first.x is not None
    assert first.y is not None
    assert later.x is first.x
    assert later.y is first.y
    assert injector.plan(_work("4", round=9), _no_rows).x is None
    x, y = _rows()
    same = torch.equal(first.x, x) and torch.equal(first.y, y)
    assert not same


def test_faults_add_up() -> None:
    """Several faults of one client all strike, each in its own rounds."""
    injector = _injector(
        FaultSpec("slow-compute", ("3",), strength=2),
        FaultSpec("label-flip", ("3",), from_round=1),
        FaultSpec("unnormalised-input", ("3",), from_round=2, strength=10),
        FaultSpec("frozen-layer", ("3",), strength=1),
    )
    assert injector.active("3", 0) == ("slow-compute", "frozen-layer")
    assert injector.active("3", 2) == ("slow-compute", "label-flip", "unnormalised-input", "frozen-layer")
    one, both = (injector.plan(_work(round=r), _rows) for r in (1, 2))
    assert one.x is not None
    assert both.x is not None
    assert torch.equal(both.x, one.x * 10)
    assert (both.compute_factor, both.frozen) == (2.0, (1,))
    assert torch.equal(injector.plan(_work(round=1), _rows).x, one.x)  # type: ignore[arg-type]  # not None, as above


def test_classes_are_given_or_seen() -> None:
    """A lone class is flipped to a class that exists, known from the federation or else from the labels."""
    lone: Callable[[], tuple[Tensor, Tensor]] = lambda: (torch.rand(5, 2), torch.full((5,), 4))  # noqa: E731
    seen = _one("label-flip").plan(_work(), lone).y
    given = _injector(FaultSpec("label-flip", ("3",)), classes=10).plan(_work(), lone).y
    assert seen is not None
    assert given is not None
    assert set(seen.tolist()) == {0}
    assert set(given.tolist()) == {5}


UPDATE = torch.linspace(-1, 2, 50)
OTHERS = [torch.linspace(0, scale, 50) for scale in (1.0, 2.0, 9.0)]


def _sent(kind: str, others: list[Tensor] = OTHERS, name: str = "3", attempt: int = 0, **more: Any) -> Tensor:
    before = UPDATE.clone()
    sent = _one(kind, client=name, **more).tamper(name, attempt, 0, UPDATE, others)
    assert torch.equal(UPDATE, before)
    assert sent.data_ptr() != UPDATE.data_ptr()
    assert all(sent.data_ptr() != other.data_ptr() for other in others)
    assert (sent.shape, sent.dtype) == (UPDATE.shape, UPDATE.dtype)
    return sent


def test_simple_tampering() -> None:
    """Flipped, scaled, zeroed: a new tensor of the same shape."""
    assert torch.equal(_sent("sign-flip"), -UPDATE)
    assert torch.equal(_sent("sign-flip", strength=4), UPDATE * -4)
    assert torch.equal(_sent("scaled-update"), UPDATE * 5)
    assert torch.equal(_sent("zero-update"), torch.zeros(50))


def test_noise_has_the_cohorts_median_norm() -> None:
    """It points anywhere, differs by client and attempt, and repeats."""
    noise = _sent("gaussian-update")
    assert float(noise.norm()) == pytest.approx(float(OTHERS[1].norm()), rel=1e-4)
    assert torch.equal(noise, _sent("gaussian-update"))
    assert not torch.equal(noise, _sent("gaussian-update", attempt=1))
    assert not torch.equal(noise, _sent("gaussian-update", name="4"))
    assert float(_sent("gaussian-update", [], strength=2).norm()) == pytest.approx(2 * float(UPDATE.norm()), rel=1e-4)
    even = _sent("gaussian-update", OTHERS[:2])
    assert float(even.norm()) == pytest.approx(float(OTHERS[0].norm() + OTHERS[1].norm()) / 2, rel=1e-4)


def test_all_duplicators_copy_the_same_client() -> None:
    """Exactly, or with a little noise of their own; alone in the round they have nothing to copy."""
    injector = _injector(FaultSpec("duplicate", ("3", "4")))
    one, two = (injector.tamper(name, 0, 6, UPDATE, OTHERS) for name in ("3", "4"))
    assert torch.equal(one, two)
    assert any(torch.equal(one, other) for other in OTHERS)
    sources = {float(injector.tamper("3", 0, r, UPDATE, OTHERS).norm()) for r in range(30)}
    assert len(sources) == 3
    noisy = _sent("duplicate", strength=0.01)
    exact = _sent("duplicate")
    assert float((noisy - exact).norm()) == pytest.approx(0.01 * float(exact.norm()), rel=1e-3)
    assert torch.equal(_sent("duplicate", []), UPDATE)


def test_nan_update() -> None:
    """One value by default, or as many as asked for."""
    assert int(_sent("nan-update").isnan().sum()) == 1
    assert int(_sent("nan-update", strength=7).isnan().sum()) == 7
    assert bool(_sent("nan-update", strength=1000).isnan().all())


def test_stale_updates_are_the_clients_own_old_ones() -> None:
    """Three participations ago, the oldest there is before that, and the true one the very first time."""
    injector = _one("stale-update")
    own = [torch.full((4,), float(attempt)) for attempt in range(7)]
    sent = []
    for attempt, update in enumerate(own):
        sent.append(float(injector.tamper("3", attempt, attempt, update)[0]))
        injector.observe("3", update)
        injector.observe("4", update)
    assert sent == [0, 0, 0, 0, 1, 2, 3]


def test_each_stale_fault_goes_back_its_own_way() -> None:
    """A client that is first three and later one participation behind sends exactly those, not its oldest."""
    injector = _injector(
        FaultSpec("stale-update", ("3",), until_round=4), FaultSpec("stale-update", ("3",), from_round=5, strength=1)
    )
    sent = []
    for attempt in range(7):
        update = torch.full((4,), float(attempt))
        sent.append(float(injector.tamper("3", attempt, attempt, update)[0]))
        injector.observe("3", update)
    assert sent == [0, 0, 0, 0, 1, 4, 5]


def test_a_client_that_turns_stale_remembers_its_honest_past() -> None:
    """Updates observed before the fault began are sent again, as copies that a later change cannot reach."""
    injector = _one("stale-update", from_round=2, strength=1)
    update = torch.ones(4)
    assert torch.equal(injector.tamper("3", 0, 0, update), update)
    injector.observe("3", update)
    update.zero_()
    assert torch.equal(injector.tamper("3", 1, 2, update), torch.ones(4))


def test_an_honest_update_is_copied_unchanged() -> None:
    """Clients and rounds without a fault send what they have."""
    injector = _one("sign-flip", from_round=5)
    for name, number in (("3", 4), ("4", 5)):
        sent = injector.tamper(name, 0, number, UPDATE)
        assert torch.equal(sent, UPDATE)
        assert sent is not UPDATE
    assert injector.tampers("3", 5)
    assert not injector.tampers("3", 4)


def test_who_needs_the_cohort() -> None:
    """Only those that imitate it, and only while they are struck."""
    for kind, fault in BY_KIND.items():
        if not fault.on_server:
            needs = issubclass(fault, UpdateFault) and fault.needs_cohort
            assert _one(kind, from_round=1).needs_cohort("3", 1) is needs
            assert _one(kind, from_round=1).needs_cohort("3", 0) is False
    assert _one("duplicate").needs_cohort("4", 1) is False


def test_the_server_is_held_up_in_its_rounds() -> None:
    """Delays of the server add up and have no culprit among the clients."""
    injector = _injector(
        FaultSpec("slow-aggregation", from_round=1, until_round=1),
        FaultSpec("slow-aggregation", from_round=2, strength=3),
    )
    assert [injector.aggregation_delay_s(r) for r in range(3)] == [0, 0.1, 3.0]
    assert injector.culprits() == {}


@given(share=st.floats(0.01, 1.0), seed=st.integers(0, 2**63 - 1), count=st.integers(1, 60))
def test_a_share_of_the_clients_is_fixed_for_the_run(share: float, seed: int, count: int) -> None:
    """The rounded share, at least one, the same whoever asks and in whatever round."""
    names = [f"site {index}" for index in range(count)]
    spec = FaultSpec("sign-flip", share=share)
    one, two = (Injector([spec], names, seed, trainable_layers=LAYERS) for _ in range(2))
    assert one.culprits() == two.culprits()
    assert len(one.culprits()) == max(1, round(share * count))
    assert all(bool(one.active(name, r)) == (name in one.culprits()) for name in names for r in (0, 99))


def test_culprits_name_every_kind_once() -> None:
    """Of all rounds, in the order of the job."""
    injector = _injector(
        FaultSpec("crash", ("3",), until_round=2),
        FaultSpec("sign-flip", ("3", "1")),
        FaultSpec("crash", ("3",), from_round=5),
    )
    assert injector.culprits() == {"1": ("sign-flip",), "3": ("crash", "sign-flip")}


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (FaultSpec("crash", ("11",)), "client '11', who is not there"),
        (FaultSpec("crash"), "neither clients nor share"),
        (FaultSpec("crash", ("1",), share=0.5), "both clients and share"),
        (FaultSpec("cras", ("1",)), "did you mean 'crash'"),
        (FaultSpec("frozen-layer", ("1",), strength=4), "the model has the trainable layers 0 to 3"),
    ],
)
def test_refused_at_construction(spec: FaultSpec, words: str) -> None:
    """What could not be carried out is refused before the training begins."""
    with pytest.raises(JobError, match=words):
        _injector(spec)


def test_refused_for_this_federation_or_model() -> None:
    """Many clients are not listed one by one; no matrix, nothing to freeze; twice is once too often."""
    many = [str(index) for index in range(1000)]
    with pytest.raises(JobError, match="the 1000 clients begin with 0, 1, 2, 3, 4"):
        Injector([FaultSpec("crash", ("zoe",))], many, 1, trainable_layers=LAYERS)
    with pytest.raises(JobError, match="finds no trainable matrix"):
        Injector([FaultSpec("frozen-layer", ("1",))], many, 1, trainable_layers=[("bias", (3,))])
    with pytest.raises(JobError, match="number 1 and number 2"):
        _injector(FaultSpec("crash", ("1",)), FaultSpec("crash", share=0.1))


def test_the_only_matrix_is_frozen_where_there_is_one() -> None:
    """Logistic regression has a single matrix."""
    injector = Injector([FaultSpec("frozen-layer", ("1",))], CLIENTS, 1, trainable_layers=LAYERS[2:])
    assert injector.plan(_work("1"), _no_rows).frozen == (0,)
