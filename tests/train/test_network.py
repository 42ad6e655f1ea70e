"""Which device each client has and what luck, and what a participation comes to by them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.faults.work import LocalWork
from fedvitals.train.device import NOMINAL, Device
from fedvitals.train.network import MOST_DESCRIBED, MOST_TRIES, Network, network_of
from fedvitals.train.reckoning import Reckoner
from fedvitals.vocabulary import Outcome

MANY = range(3000)
SEEDS = st.integers(0, 2**31)
CHANCES = st.floats(0.0, 0.9)


def _work(attempt: int = 0, **changes: float) -> LocalWork:
    return replace(LocalWork(client=0, name="7", attempt=attempt, round=attempt, lr=0.1), **changes)  # type: ignore[arg-type]  # floats only


def _network(device: Device, seed: int = 1) -> Network:
    return Network("mobile", ("7",), (device,), seed)


def _reckoner(device: Device, seed: int = 1) -> Reckoner:
    return Reckoner(_network(device, seed), epochs=2, step_rows=8, parameters=1000, rows=lambda work: 20)


def test_without_a_network_everybody_has_the_nominal_device() -> None:
    """No retry, no absence, no change from one transfer to the next."""
    network = network_of("none", ["a", "b"], 3)
    assert not network.imitated
    assert network.devices == (NOMINAL, NOMINAL)
    assert network.download(_work(), 12345) == (NOMINAL.download_s(12345), 0, False)
    assert network.upload(_work(link_factor=7.0), 12345) == (NOMINAL.upload_s(12345, 7.0), 0, False)
    assert all(network.available(0, number) for number in MANY)
    assert all(network.leaves_after(_work(number)) is None for number in MANY)


@pytest.mark.parametrize("profile", ["lan", "broadband", "mobile", "cross-silo"])
def test_a_profile_gives_everyone_a_device_of_its_own(profile: str) -> None:
    """The same for the same seed, whoever else is there; another for another seed."""
    network = network_of(profile, ["a", "b", "c"], 3)
    assert network.imitated
    assert len(set(network.devices)) == 3
    assert network_of(profile, ["c", "a"], 3).devices == (network.devices[2], network.devices[0])
    assert network_of(profile, ["a", "b", "c"], 4).devices != network.devices


def test_a_transfer_that_breaks_off_is_begun_again() -> None:
    """As often as the chance says; each time the part that was through is spent, and never more."""
    network = _network(Device(loss=0.3))
    once = NOMINAL.upload_s(10**6)
    found = [network.upload(_work(number), 10**6) for number in MANY]
    for one in found:
        wasted = one.seconds - (0.0 if one.given_up else once)
        assert 0 <= wasted <= (one.retries + one.given_up) * once
        assert (wasted > 0) == (one.retries > 0)
    assert sum(one.retries > 0 for one in found) / len(found) == pytest.approx(0.3, abs=0.03)
    assert max(one.retries for one in found) < MOST_TRIES


def test_a_hopeless_transfer_is_given_up() -> None:
    """After six tries, as often as chance has it."""
    found = [_network(Device(loss=0.9)).download(_work(number), 1000) for number in MANY]
    assert sum(one.given_up for one in found) / len(found) == pytest.approx(0.9**MOST_TRIES, abs=0.04)
    assert {one.retries for one in found if one.given_up} == {MOST_TRIES - 1}


@given(size=st.integers(0, 10**9), slow=st.floats(1e3, 1e10), fast=st.floats(1e3, 1e10), loss=CHANCES, seed=SEEDS)
def test_more_bandwidth_never_takes_longer_whatever_the_luck(
    size: int, slow: float, fast: float, loss: float, seed: int
) -> None:
    """A faster link breaks off at the same tries, at the same parts of the way."""
    slow, fast = sorted((slow, fast))
    devices = [Device(down_bits_per_s=one, up_bits_per_s=one, loss=loss, jitter=0.5) for one in (slow, fast)]
    one, other = (_network(device, seed) for device in devices)
    assert other.download(_work(), size).seconds <= one.download(_work(), size).seconds
    assert other.upload(_work(), size).seconds <= one.upload(_work(), size).seconds
    assert other.upload(_work(), size).retries == one.upload(_work(), size).retries


@given(seed=SEEDS, attempt=st.integers(0, 1000), loss=CHANCES, dropout=CHANCES, available=st.floats(0.01, 1.0))
def test_luck_is_a_function_of_seed_client_and_attempt(
    seed: int, attempt: int, loss: float, dropout: float, available: float
) -> None:
    """The same network asked again, in another order, gives the same answers."""
    device = Device(loss=loss, dropout=dropout, available=available, jitter=0.3)

    def asked(network: Network) -> list[object]:
        work = _work(attempt)
        return [
            network.download(work, 5000),
            network.upload(work, 5000),
            network.leaves_after(work),
            network.available(0, attempt),
        ]

    network = _network(device, seed)
    asked(_network(device, seed + 1))
    first = asked(network)
    network.upload(_work(attempt + 1), 1)
    assert asked(network) == first == asked(_network(device, seed))


def test_absence_and_dropout_are_as_frequent_as_said() -> None:
    """Within what chance allows over three thousand rounds, and looking again is another chance."""
    network = _network(Device(available=0.7, dropout=0.2))
    assert sum(network.available(0, number) for number in MANY) / len(MANY) == pytest.approx(0.7, abs=0.03)
    shares = [network.leaves_after(_work(number)) for number in MANY]
    gone = [share for share in shares if share is not None]
    assert len(gone) / len(shares) == pytest.approx(0.2, abs=0.03)
    assert all(0 <= share < 1 for share in gone)
    assert {network.available(0, 5, look) for look in range(50)} == {True, False}


def test_factors_of_faults_multiply_the_devices_own() -> None:
    """Each stretches its own phases of a slow device as it does those of the nominal one."""
    reckoner = _reckoner(Device(flop_per_s=1e8, up_bits_per_s=1e6, step_s=0.01))
    honest = reckoner.finished(_work(), 6, 20, 4000, 4000).phases_s
    worse = _work(compute_factor=3.0, link_factor=5.0, load_factor=4.0)
    found = reckoner.finished(worse, 6, 20, 4000, 4000).phases_s
    assert honest["train"] == pytest.approx(6 * 1000 * 20 * 2 / 1e8 + 6 * 0.01)
    assert honest["load"] == 0.0
    assert found == pytest.approx(
        {
            "download": 5 * honest["download"],
            "load": 3 * honest["train"],
            "train": 3 * honest["train"],
            "upload": 5 * honest["upload"],
        }
    )


@given(attempt=st.integers(0, 300), loss=CHANCES)
def test_who_goes_away_has_gone_through_a_part_of_its_work(attempt: int, loss: float) -> None:
    """Phases are those of its whole work up to an instant, and the message says after how long."""
    reckoner = _reckoner(Device(dropout=0.99, loss=loss))
    early = reckoner.early_end(_work(attempt), 4000)
    whole = reckoner.finished(_work(attempt), 6, 20, 4000, 4000).phases_s
    if early is None:
        assert reckoner.network.leaves_after(_work(attempt)) is None
        return
    assert early.broke is not None
    assert list(early.phases_s) == list(whole)[: len(early.phases_s)]
    for phase, seconds in list(early.phases_s.items())[:-1]:
        assert seconds == whole[phase]
    assert early.total_s <= sum(whole.values())
    assert early.broke.stage == list(early.phases_s)[-1]
    if early.broke.outcome == Outcome.DROPPED:
        assert early.broke.message == f"went away after {early.total_s:.3g} s"
    else:
        assert early.broke.stage == "download"


@pytest.mark.parametrize(("rows", "drop_last", "steps"), [(20, False, 3), (20, True, 2), (16, True, 2), (5, True, 1)])
def test_steps_are_planned_as_clients_take_them(rows: int, drop_last: bool, steps: int) -> None:
    """A fixed cost a step shows how many steps a client that fails at the end is reckoned with."""
    reckoner = replace(_reckoner(Device(step_s=1.0, flop_per_s=1e18)), rows=lambda work: rows)
    found = reckoner.failed(replace(_work(), drop_last=drop_last), "encode", 0)
    assert found.phases_s["train"] == pytest.approx(2.0 * steps)


def test_a_client_that_raises_has_had_its_download() -> None:
    """Where a network is imitated; without one it takes no time, as it always did."""
    assert list(_reckoner(Device()).failed(_work(), "train", 4000).phases_s) == ["download"]
    nothing = Reckoner(network_of("none", ["7"], 1), 2, 8, 1000, lambda work: 20)
    assert nothing.failed(_work(), "train", 4000).phases_s == {}


def test_the_description_is_bounded() -> None:
    """A thousand devices, and how many clients there are; none where all are nominal."""
    names = [str(number) for number in range(MOST_DESCRIBED + 5)]
    said = network_of("mobile", names, 1).described()
    assert said["profile"] == "mobile"
    assert said["clients"] == MOST_DESCRIBED + 5
    assert list(said["devices"]) == names[:MOST_DESCRIBED]
    assert network_of("none", names, 1).described()["devices"] == {}
