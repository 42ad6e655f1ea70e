"""Files that commands write: the whole or nothing."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from fedvitals.errors import FedvitalsError
from fedvitals.show.whole_file import whole_file


def test_what_was_there_stays_until_all_is_written(tmp_path: Path) -> None:
    """An error in the middle leaves the old file, and nothing beside it."""
    path = tmp_path / "r.html"
    path.write_text("old")
    with pytest.raises(ZeroDivisionError), whole_file(path, "-o") as file:
        file.write("half" * (1 // file.write("half") // 0))
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    """What it leads to is written."""
    (tmp_path / "link").symlink_to(tmp_path / "real")
    with whole_file(tmp_path / "link", "-o") as file:
        file.write("new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "real").read_text() == "new"


def test_a_name_that_ends_in_gz_is_packed(tmp_path: Path) -> None:
    """The same text gives the same bytes; letters that cannot be are spelled out."""
    for name in ("a.gz", "b.gz"):
        with whole_file(tmp_path / name, "-o") as file:
            file.write("text \ud800")
    assert gzip.decompress((tmp_path / "a.gz").read_bytes()) == b"text \\ud800"
    assert (tmp_path / "a.gz").read_bytes() == (tmp_path / "b.gz").read_bytes()


def test_a_device_is_written_to_directly(tmp_path: Path) -> None:
    """`/dev/null` is still a device afterwards."""
    with whole_file(Path(os.devnull), "-o") as file:
        file.write("gone")
    assert not Path(os.devnull).is_file()


def test_no_room_is_said_with_the_option(tmp_path: Path) -> None:
    """The user's own words, the path and the reason."""
    with (
        pytest.raises(FedvitalsError, match=r"^--out .*/dev/full: No space left"),
        whole_file(Path("/dev/full"), "--out") as file,
    ):
        file.write("x" * 100_000)


def test_a_dash_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be a file that few shells let one remove; the message names what was meant."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FedvitalsError, match="/dev/stdout"), whole_file(Path("-"), "-o"):
        pass
    assert list(tmp_path.iterdir()) == []
