"""Who can be asked when a round begins."""

from __future__ import annotations

import pytest

from fedvitals.errors import JobError
from fedvitals.train.attendance import Attendance
from fedvitals.train.device import Device
from fedvitals.train.network import Network, network_of

NAMES = tuple(f"site-{number}" for number in range(8))


def test_without_a_network_all_but_the_excluded_are_there() -> None:
    """In every round."""
    attendance = Attendance(network_of("none", NAMES, 1), ("site-2", "site-7"))
    assert attendance.present(0, 0) == attendance.present(99, 10**9) == [0, 1, 3, 4, 5, 6]


def test_devices_that_are_away_are_not_asked() -> None:
    """Each comes and goes by itself; looking again is another chance."""
    network = Network("x.csv", NAMES, (Device(available=0.5),) * 8, 1)
    attendance = Attendance(network, ["site-0"])
    seen = [attendance.present(number, 0) for number in range(200)]
    assert all(one == [client for client in range(1, 8) if network.available(client, n)] for n, one in enumerate(seen))
    assert {client for one in seen for client in one} == set(range(1, 8))
    assert len({tuple(one) for one in seen}) > 50
    assert attendance.present(3, 0, look=1) != attendance.present(3, 0)


def test_who_is_late_is_asked_again_when_done() -> None:
    """Busy up to that instant, and not at it."""
    attendance = Attendance(network_of("none", NAMES[:3], 1))
    attendance.busy(1, until_ns=50)
    assert attendance.present(1, 49) == [0, 2]
    assert attendance.present(1, 50) == [0, 1, 2]


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    """A typing mistake would quietly measure another federation."""
    with pytest.raises(JobError, match=r"train\.exclude: there is no client 'site-77'; did you mean 'site-7'\?"):
        Attendance(network_of("none", NAMES, 1), ["site-77"])
    many = [f"hospital {number}" for number in range(6000)]
    with pytest.raises(JobError, match="the 6000 clients begin with hospital 0, hospital 1"):
        Attendance(network_of("none", many, 1), ["clinic"])


def test_excluding_everybody_is_refused() -> None:
    """Nobody would be left to train."""
    with pytest.raises(JobError, match="leaves none of 8 clients"):
        Attendance(network_of("none", NAMES, 1), NAMES)
