"""Small blobs in one file: added by one journal, read by many, and never believed beyond what is there."""

from __future__ import annotations

import hashlib
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.errors import StoreError
from fedvitals.store.blobs import BlobFolder
from fedvitals.store.pack import LARGEST, NAME, Pack


def test_small_blobs_share_a_file_and_are_kept_once(tmp_path: Path) -> None:
    """A hundred of them make one file; one that is there adds nothing."""
    folder = BlobFolder(tmp_path)
    names = [folder.put(b"model %d" % number)[0] for number in range(100)]
    assert folder.put(b"model 7") == (names[7], 0)
    folder.close()
    assert [path.name for path in tmp_path.iterdir()] == [NAME]
    assert BlobFolder(tmp_path).get(names[42]) == b"model 42"
    assert folder.size_bytes() == (tmp_path / NAME).stat().st_size


def test_a_reader_sees_what_is_added_while_it_is_open(tmp_path: Path) -> None:
    """A run that goes on is read from another process."""
    writer, reader = BlobFolder(tmp_path), BlobFolder(tmp_path)
    with pytest.raises(StoreError, match="missing"):
        reader.get(hashlib.sha256(b"first").hexdigest())
    for data in (b"first", b"", b"third"):
        name, added = writer.put(data)
        assert added == 40 + len(data)
        assert reader.get(name) == data
    writer.close()


def test_who_goes_on_writing_knows_what_is_there(tmp_path: Path) -> None:
    """Opened again, what was written before is neither written twice nor overwritten."""
    first = BlobFolder(tmp_path)
    name, _ = first.put(b"before")
    first.close()
    second = BlobFolder(tmp_path)
    other, _ = second.put(b"after")
    assert second.put(b"before") == (name, 0)
    second.close()
    assert [BlobFolder(tmp_path).get(one) for one in (name, other)] == [b"before", b"after"]


@pytest.mark.parametrize("end", [b"half a head", struct.pack("<32sQ", b"x" * 32, 10) + b"half", b""])
def test_an_end_that_is_not_whole_is_no_blob(tmp_path: Path, end: bytes) -> None:
    """What a killed writer left behind is written over by the next."""
    folder = BlobFolder(tmp_path)
    name, _ = folder.put(b"whole")
    folder.close()
    with (tmp_path / NAME).open("ab") as file:
        file.write(end)
    again = BlobFolder(tmp_path)
    assert again.get(name) == b"whole"
    new, _ = again.put(b"new")
    again.close()
    assert [BlobFolder(tmp_path).get(one) for one in (name, new)] == [b"whole", b"new"]


def test_a_blob_of_other_bytes_is_refused(tmp_path: Path) -> None:
    """The name is the content's."""
    folder = BlobFolder(tmp_path)
    name, _ = folder.put(b"weights")
    folder.close()
    path = tmp_path / NAME
    path.write_bytes(path.read_bytes().replace(b"weights", b"WEIGHTS"))
    with pytest.raises(StoreError, match="damaged"):
        BlobFolder(tmp_path).get(name)


@given(st.binary(max_size=400))
def test_any_bytes_are_a_pack_of_some_blobs(data: bytes) -> None:
    """A file from anywhere is looked through without a word, and no length in it is believed."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / NAME).write_bytes(data + struct.pack("<32sQ", b"y" * 32, 1 << 60))
        pack = Pack(Path(folder))
        assert pack.get(b"y" * 32) is None
        assert all(size <= LARGEST for _, size in pack._places.values())
