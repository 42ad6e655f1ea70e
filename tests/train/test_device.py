"""What devices and the server need, and the kinds of clients that devices are drawn from."""

from __future__ import annotations

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.train.device import NOMINAL, Device, ServerDevice
from fedvitals.train.device_files import COLUMNS
from fedvitals.train.device_profiles import PROFILES, drawn
from fedvitals.train.sections import NETWORKS

SPEEDS = st.floats(1e3, 1e12)
SIZES = st.integers(0, 10**10)


def test_the_nominal_devices_arithmetic() -> None:
    """100 Mbit/s after 20 ms, 6 flop a parameter a row at 1 GFLOP/s, each times its factor."""
    assert NOMINAL.download_s(1_250_000) == pytest.approx(0.12)
    assert NOMINAL.upload_s(1_250_000, link_factor=10) == pytest.approx(1.2)
    assert NOMINAL.train_s(steps=21, batch_rows=32, parameters=2762) == pytest.approx(6 * 2762 * 32 * 21 / 1e9)
    assert NOMINAL.train_s(10, 32, 1000, compute_factor=4) == pytest.approx(4 * NOMINAL.train_s(10, 32, 1000))


def test_each_step_has_its_fixed_cost() -> None:
    """Ten steps of a device that needs 5 ms for each take 50 ms more, and twice that at half the speed."""
    slow = Device(step_s=0.005)
    assert slow.train_s(10, 32, 1000) == pytest.approx(NOMINAL.train_s(10, 32, 1000) + 0.05)
    assert slow.train_s(10, 32, 1000, compute_factor=2) == pytest.approx(2 * slow.train_s(10, 32, 1000))


@given(size=SIZES, slow=SPEEDS, fast=SPEEDS, factor=st.floats(1, 1e3))
def test_more_bandwidth_never_takes_longer(size: int, slow: float, fast: float, factor: float) -> None:
    """Both ways; and a slower link never takes less."""
    slow, fast = sorted((slow, fast))
    one, other = (Device(down_bits_per_s=speed, up_bits_per_s=speed) for speed in (slow, fast))
    assert other.download_s(size, factor) <= one.download_s(size, factor)
    assert other.upload_s(size, factor) <= one.upload_s(size, factor)
    assert one.upload_s(size) <= one.upload_s(size, factor)


@given(rows=st.integers(0, 10**7), more=st.integers(0, 10**7), parameters=st.integers(1, 10**8))
def test_the_servers_time_grows_with_its_work(rows: int, more: int, parameters: int) -> None:
    """More clients, updates or rows never take less, and no work of a round is free."""
    server = ServerDevice()
    for spent in (server.select_s, *(_with(parameters, one) for one in (server.aggregate_s, server.evaluate_s))):
        assert 0 <= spent(rows) <= spent(rows + more)
    assert server.select_s(1) > 0 < server.aggregate_s(1, parameters)
    assert server.evaluate_s(1, parameters) > 0


def _with(parameters: int, spent: object):  # type: ignore[no-untyped-def]  # one of two methods
    return lambda count: spent(count, parameters)  # type: ignore[operator]


def test_the_job_knows_the_profiles_there_are() -> None:
    """Their names stand in the job's sections, which must not load what draws them."""
    assert tuple(PROFILES) == NETWORKS


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_gives_devices_within_reason(name: str) -> None:
    """Each drawn device could stand in a file of devices, and the middle one is near the profile's own middle."""
    profile = PROFILES[name]
    devices = [drawn(profile, 42, str(number)) for number in range(400)]
    for device in devices:
        for column in COLUMNS.values():
            assert column.holds(getattr(device, column.field) / column.unit)
    for field in ("down_bits_per_s", "up_bits_per_s", "latency_s", "flop_per_s", "step_s"):
        middle, around = statistics.median(getattr(one, field) for one in devices), getattr(profile, field)
        assert around.at(-0.25) <= middle <= around.at(0.25)


def test_phones_are_slower_than_desktops() -> None:
    """In the middle, a phone's link and computer are slower than a home's, and those than a local network's."""
    for field in ("down_bits_per_s", "up_bits_per_s", "flop_per_s"):
        middles = [getattr(PROFILES[name], field).median for name in ("mobile", "broadband", "lan")]
        assert middles == sorted(middles)


@given(seed=st.integers(0, 2**40), client=st.text(max_size=20))
def test_a_device_is_a_function_of_seed_and_client(seed: int, client: str) -> None:
    """The same twice, another for another seed or another client."""
    profile = PROFILES["mobile"]
    device = drawn(profile, seed, client)
    assert drawn(profile, seed, client) == device
    assert drawn(profile, seed + 1, client) != device
    assert drawn(profile, seed, f"{client}.") != device
