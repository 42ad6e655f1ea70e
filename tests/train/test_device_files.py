"""Devices from a CSV file: dealt out the same way every time, and refused with the line and column that is wrong."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fedvitals.errors import JobError
from fedvitals.train.device import Device
from fedvitals.train.device_files import COLUMNS, MAX_FILE_BYTES, dealt, described, read

CLIENTS = ("a", "b", "c", "d")


def _file(folder: Path, text: str | bytes) -> Path:
    path = folder / "devices.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def test_units_are_those_people_write(tmp_path: Path) -> None:
    """Mbit/s, ms and GFLOP/s become bits, seconds and flop; a column that is left out is the nominal device's."""
    path = _file(tmp_path, "up_mbps, Down_Mbps ,latency_ms,gflop_per_s,step_ms,loss\n8,30,50,2,1.5,0.1\n")
    assert read(path).devices == (
        Device(
            up_bits_per_s=8e6,
            down_bits_per_s=30e6,
            latency_s=0.05,
            flop_per_s=2e9,
            step_s=0.0015,
            loss=0.1,
        ),
    )


def test_named_rows_belong_to_their_clients(tmp_path: Path) -> None:
    """In any order, with a byte order mark, quotes and empty lines; rows of nobody here are left aside."""
    text = '\ufeffclient,down_mbps\r\n"d",4\r\n\r\nb,2\r\nz,9\r\na,1\r\nc,3\r\n'
    file = read(_file(tmp_path, text))
    assert [one.down_bits_per_s for one in dealt("x.csv", file, CLIENTS, seed=1)] == [1e6, 2e6, 3e6, 4e6]


def test_a_client_without_a_row_is_named(tmp_path: Path) -> None:
    """Not quietly given someone else's."""
    file = read(_file(tmp_path, "client,down_mbps\na,1\n"))
    with pytest.raises(JobError, match=r"x\.csv, column client: 3 of 4 clients have no row: 'b', 'c', 'd'; right is"):
        dealt("x.csv", file, CLIENTS, seed=1)


@given(rows=st.integers(1, 30), clients=st.integers(1, 60), seed=st.integers(0, 2**31))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
def test_a_deck_is_dealt_evenly_and_the_same_every_time(tmp_path: Path, rows: int, clients: int, seed: int) -> None:
    """No device is dealt twice before all are dealt, and as often as any other, up to one."""
    file = read(_file(tmp_path, "up_mbps\n" + "".join(f"{number + 1}\n" for number in range(rows))))
    names = [str(number) for number in range(clients)]
    given_out = dealt("x.csv", file, names, seed)
    assert dealt("x.csv", file, names, seed) == given_out
    counts = Counter(one.up_bits_per_s for one in given_out)
    assert len(given_out) == clients
    assert len(counts) == min(rows, clients)
    assert max(counts.values()) - min(counts.values()) <= 1


def test_decks_of_two_seeds_differ(tmp_path: Path) -> None:
    """Thirty devices are not dealt in the same order twice."""
    file = read(_file(tmp_path, "up_mbps\n" + "".join(f"{number + 1}\n" for number in range(30))))
    names = [str(number) for number in range(30)]
    assert dealt("x.csv", file, names, 1) != dealt("x.csv", file, names, 2)


BAD: list[tuple[str | bytes, str]] = [
    ("", "line 1 should name the columns, at least one of down_mbps"),
    ("client\n3\n", "line 1 should name the columns, at least one of down_mbps"),
    ("down_mbit\n3\n", "line 1: there is no column 'down_mbit'; did you mean 'down_mbps'?"),
    ("loss,up_mbps,loss\n0,1,0\n", "line 1, column loss: it is there twice"),
    ("up_mbps\n", "has no device: there is no line below"),
    ("up_mbps,loss\n3,0\n4\n", "line 3 has 1 cells; the first line names 2 columns"),
    ("up_mbps,loss\n\n3,0,7\n", "line 3 has 3 cells"),
    ("up_mbps\n3\nfast\n", "line 3, column up_mbps: 'fast' should be a number above 0 and at most 1e+07"),
    ("up_mbps\n0\n", "line 2, column up_mbps: '0' should be a number above 0"),
    ("loss\n1\n", "line 2, column loss: '1' should be a number of at least 0 and at most 0.99"),
    ("loss\n-0.1\n", "column loss: '-0.1' should be"),
    ("latency_ms\nnan\n", "column latency_ms: 'nan' should be"),
    ("latency_ms\ninf\n", "column latency_ms: 'inf' should be"),
    ("loss,up_mbps\n,3\n", "line 2, column loss: '' should be"),
    ("client,loss\n a ,0\na,0\n", "line 3, column client: 'a' has line 2 already"),
    ("client,loss\n ,0\n", "line 2, column client: it is empty"),
    ('loss\n"0\n', "is not CSV"),
    (b"loss\n\xff\n", "is not UTF-8 text: byte 5"),
    (b"loss\n" + b"0\n" * (MAX_FILE_BYTES // 2), "is larger than 20,000,000 bytes: that is no list of devices"),
]


@pytest.mark.parametrize(("text", "words"), BAD, ids=[words[:40] for _, words in BAD])
def test_a_bad_file_is_refused_by_line_and_column(text: str | bytes, words: str, tmp_path: Path) -> None:
    """One line that names the file and says what would be right."""
    path = _file(tmp_path, text)
    with pytest.raises(JobError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_file_and_no_folder(tmp_path: Path) -> None:
    """A path that leads nowhere, or to a folder, is named with the key it stands in."""
    with pytest.raises(JobError, match=r"network\.profile: .*none\.csv: there is no such file"):
        read(tmp_path / "none.csv")
    with pytest.raises(JobError, match="is not a file"):
        read(tmp_path)


@given(st.data())
def test_what_is_described_can_be_read_back(data: st.DataObject) -> None:
    """A device's description has every column, to four digits."""
    limits = {one.field: st.floats(max(one.low, 1e-3) * one.unit, one.high * one.unit) for one in COLUMNS.values()}
    device = Device(**data.draw(st.fixed_dictionaries(limits)))
    said = described(device)
    assert list(said) == list(COLUMNS)
    for name, column in COLUMNS.items():
        assert said[name] * column.unit == pytest.approx(getattr(device, column.field), rel=1e-3)


@given(st.binary(max_size=60) | st.text('client,loss\n"0.5;\0é ', max_size=40).map(str.encode))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_rubbish_is_devices_or_one_error(tmp_path: Path, rubbish: bytes) -> None:
    """Nothing that a file could hold gets out as another error, or as a device that cannot be."""
    try:
        devices = read(_file(tmp_path, b"loss\n" + rubbish)).devices
    except JobError as error:
        refusal = str(error)
        devices = ()
    else:
        refusal = ""
    assert all(0 <= one.loss <= 0.99 for one in devices)
    assert bool(devices) != bool(refusal)
    assert "\n" not in refusal
