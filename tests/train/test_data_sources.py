"""Sources from outside: files and functions that may be missing, damaged, huge or hostile."""

from __future__ import annotations

import io
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from fedvitals.errors import DataError
from fedvitals.train.data import load
from fedvitals.train.sections import DataSpec

HERE = "data_functions_of_a_test"
FUNCTIONS = """
import numpy as np
import torch

X, Y = np.random.default_rng(0).normal(size=(50, 4)), np.arange(50) % 2

def pair(): return X, Y
def four(): return torch.tensor(X), torch.tensor(Y), torch.tensor(X[:9]), torch.tensor(Y[:9])
def named(): return {"x_train": X, "y_train": Y, "client": np.arange(50) // 10, "client_names": list("abcde")}
def sized(data): return X[: data.rows], Y[: data.rows]
def optional(data=None): assert data is None; return X, Y
def raises(): raise ValueError("the disk is on fire")
def nothing(): return None
def ragged(): return [[1, 2], [3]], [0, 1]
def objects(): return np.array([{}, {}], dtype=object), [0, 1]
NUMBER = 3
"""


@pytest.fixture
def functions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the working folder, as a user has one."""
    (tmp_path / f"{HERE}.py").write_text(FUNCTIONS)
    (tmp_path / f"broken_{HERE}.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, HERE, raising=False)
    return HERE


def test_a_function_gives_rows_in_any_of_the_forms(functions: str) -> None:
    """A pair, four arrays, torch tensors, a dict, and a function that wants the section."""
    assert load(DataSpec(source=f"{functions}:pair"), 1).x.shape == (40, 4)
    four = load(DataSpec(source=f"{functions}:four"), 1)
    assert (len(four.x), len(four.x_test), four.classes) == (50, 9, 2)
    named = load(DataSpec(source=f"{functions}:named"), 1)
    assert named.client_names == tuple("abcde")
    assert len(load(DataSpec(source=f"{functions}:sized", rows=20), 1).x) == 16
    assert len(load(DataSpec(source=f"{functions}:optional"), 1).x) == 40


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{HERE}:raises", "ValueError when called: the disk is on fire"),
        (f"{HERE}:nothing", "returned a NoneType; right is"),
        (f"{HERE}:ragged", "cannot be made an array|is ragged"),
        (f"{HERE}:objects", "x_train is ragged or holds objects"),
        (f"{HERE}:missing", "'missing' is not in that module"),
        (f"{HERE}:NUMBER", "'NUMBER' is not a function"),
        (f"no_{HERE}:pair", "No module named"),
        (f"broken_{HERE}:pair", "gave ZeroDivisionError"),
        (f"{HERE}:pair()", "should read module:function"),
    ],
)
def test_a_function_that_fails_is_named(functions: str, name: str, words: str) -> None:
    """Whatever goes wrong in a user's function is one DataError with its name."""
    with pytest.raises(DataError, match=words) as caught:
        load(DataSpec(source=name), 1)
    assert name in str(caught.value)


def test_a_users_arrays_are_not_written_to(functions: str) -> None:
    """Scaling makes new arrays."""
    load(DataSpec(source=f"{functions}:pair", scale="standard"), 1)
    module = sys.modules[functions]
    assert torch.equal(torch.tensor(module.X), torch.tensor(np.random.default_rng(0).normal(size=(50, 4))))


def _file(folder: Path, members: dict[str, bytes]) -> DataSpec:
    path = folder / "rows.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return DataSpec(source=str(path))


def _npy(array: object, allow_pickle: bool = False) -> bytes:
    file = io.BytesIO()
    np.save(file, np.asarray(array), allow_pickle=allow_pickle)
    return file.getvalue()


def _claim(shape: tuple[int, ...], descr: str = "<f4") -> bytes:
    """An array's header, without the array."""
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
    return file.getvalue()


def test_a_file_that_claims_too_much_is_refused_unread(tmp_path: Path) -> None:
    """A header of 80 bytes may claim petabytes; it is believed and refused, not allocated."""
    labels = _npy(np.arange(4))
    with pytest.raises(DataError, match=r"its arrays claim [\d,]+ bytes in memory; at most 4,294,967,296"):
        load(_file(tmp_path, {"x_train.npy": _claim((10**9, 10**6)), "y_train.npy": labels}), 1)
    with pytest.raises(DataError, match="its arrays claim"):  # bytes grow fourfold as floats
        load(_file(tmp_path, {"x_train.npy": _claim((2 * 10**9,), "|u1"), "y_train.npy": labels}), 1)
    with pytest.raises(DataError, match="vocab claims"):
        load(_file(tmp_path, {"x_train.npy": labels, "y_train.npy": labels, "vocab.npy": _claim((10**9,))}), 1)
    with pytest.raises(DataError, match="which cannot be"):
        load(_file(tmp_path, {"x_train.npy": _claim((-5, 3)), "y_train.npy": labels}), 1)


def test_pickles_are_never_opened(tmp_path: Path) -> None:
    """An object array would run code when read; it is refused by its header."""

    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return (Path.touch, (tmp_path / "sprung",))  # type: ignore[return-value]  # any callable does

    trap = np.empty(2, dtype=object)
    trap[:] = [Trap(), Trap()]
    spec = _file(tmp_path, {"x_train.npy": _npy(trap, allow_pickle=True), "y_train.npy": _npy([0, 1])})
    with pytest.raises(DataError, match="holds Python objects, which are never unpickled"):
        load(spec, 1)
    assert not (tmp_path / "sprung").exists()


@pytest.mark.parametrize(
    ("members", "words"),
    [
        ({"x_train.npy": b"rubbish", "y_train.npy": _npy([0, 1])}, "x_train.npy is not a plain array"),
        ({"x_train.npy": _claim((2, 3)), "y_train.npy": _npy([0, 1])}, "x_train.npy is damaged"),
        ({"x_train.npy": _npy([[1.0], [2.0]])}, "there is no array 'y_train'; what there is: x_train"),
        ({"other.npy": _npy([1])}, "there is no array 'x_train'; what there is: other"),
        ({}, "there is no array 'x_train'; what there is: nothing"),
        ({"x_train.npy": _npy(3.0), "y_train.npy": _npy([0])}, "x_train is a single value"),
        (
            {"x_train.npy": _npy([[1.0]]), "y_train.npy": _npy([0]), "x_test.npy": _npy([[1.0]])},
            "x_test and y_test come together",
        ),
    ],
)
def test_damaged_files(tmp_path: Path, members: dict[str, bytes], words: str) -> None:
    """A file that is not what it should be gives one error with its path."""
    spec = _file(tmp_path, members)
    with pytest.raises(DataError, match=words) as caught:
        load(spec, 1)
    assert spec.source in str(caught.value)


def test_missing_and_foreign_files(tmp_path: Path) -> None:
    """No file, a folder, and a file that is no archive."""
    with pytest.raises(DataError, match="there is no such file"):
        load(DataSpec(source=str(tmp_path / "none.npz")), 1)
    foreign = tmp_path / "foreign.npz"
    foreign.write_bytes(b"not a zip")
    with pytest.raises(DataError, match=r"cannot be read as an \.npz file"):
        load(DataSpec(source=str(foreign)), 1)


def test_a_flipped_byte_is_noticed(tmp_path: Path) -> None:
    """Damage inside a compressed array is an error, not other numbers."""
    path = tmp_path / "rows.npz"
    x = np.random.default_rng(0).normal(size=(100, 10))
    np.savez_compressed(path, x_train=x, y_train=np.arange(100) % 2)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"rows\.npz"):
        load(DataSpec(source=str(path)), 1)
