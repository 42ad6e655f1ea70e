"""Rows: what each source gives, how it is shaped and scaled, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from fedvitals.errors import DataError
from fedvitals.train.data import load, stratified
from fedvitals.train.sections import DataSpec
from fedvitals.train.sources.raw import Array


def _npz(folder: Path, **arrays: object) -> DataSpec:
    path = folder / "rows.npz"
    np.savez(path, **{name: np.asarray(array) for name, array in arrays.items()})  # type: ignore[arg-type]  # no key is allow_pickle
    return DataSpec(source=str(path), partition="iid")


def _vectors(rows: int = 40, features: int = 3) -> dict[str, Array]:
    x = np.random.default_rng(0).normal(size=(rows, features)).astype(np.float32)
    y = np.arange(rows) % 2
    return {"x_train": x, "y_train": y, "x_test": x[:10], "y_test": y[:10]}


@pytest.mark.parametrize(
    ("model", "shape", "kind"),
    [
        ("mlp", (64,), "vector"),
        ("logistic", (64,), "vector"),
        ("cnn", (1, 8, 8), "image"),
        ("gru", (8, 8), "sequence"),
        ("mine:model", (1, 8, 8), "image"),
    ],
)
def test_digits_take_the_models_shape(model: str, shape: tuple[int, ...], kind: str) -> None:
    """The same digits come as vectors, images or sequences; the values are those of scikit-learn / 16."""
    rows = load(DataSpec(), 1, model)
    assert rows.x.shape == (1438, *shape)
    assert (rows.kind, rows.classes, str(rows.x.dtype)) == (kind, 10, "float32")
    assert rows.x.min() == 0.0
    assert rows.x.max() == 1.0
    assert len(rows.x_test) == 359


def test_digits_lose_no_row_to_the_test_split() -> None:
    """Training and test rows together are the 1,797 digits, and no class is missing from the test."""
    from sklearn.datasets import load_digits

    rows = load(DataSpec(scale="none"), 5)
    whole = sorted(map(tuple, load_digits().data.tolist()))
    assert sorted(map(tuple, np.concatenate([rows.x, rows.x_test]).tolist())) == whole
    assert set(rows.y_test.tolist()) == set(range(10))


def test_the_test_split_is_a_fifth_of_each_class() -> None:
    """Each class lends its rounded fifth, the same ones for the same seed."""
    y = np.repeat([0, 1, 2], [50, 10, 5])
    held = stratified(y, 0.2, 3)
    assert np.bincount(y[held]).tolist() == [10, 2, 1]
    assert np.array_equal(held, stratified(y, 0.2, 3))
    assert not np.array_equal(held, stratified(y, 0.2, 4))


def test_synthetic_rows_are_the_tutorials() -> None:
    """Standard normal features, uniform labels, +2.0 at the feature that the label names."""
    rows = load(DataSpec(source="synthetic", clients=50, features=7, classes=10), 1)
    assert rows.x.shape == (10_000, 7)
    assert len(rows.x_test) == 500
    signal = rows.x[np.arange(len(rows.y)), rows.y % 7]
    rest = np.delete(rows.x, 0, axis=1)[rows.y % 7 == 0]
    assert abs(signal.mean() - 2.0) < 0.05
    assert abs(rest.mean()) < 0.05
    assert abs(rest.std() - 1.0) < 0.05
    assert np.bincount(rows.y, minlength=10).min() > 800


def test_a_synthetic_clients_rows_do_not_depend_on_the_others() -> None:
    """Client 3 has the same rows in a federation of 5 or of 50, and other seeds have others."""
    few, many = (load(DataSpec(source="synthetic", clients=n, rows=20), 1) for n in (5, 50))
    assert np.array_equal(few.x, many.x[:100])
    assert few.client is not None
    assert few.client.tolist() == np.repeat(np.arange(5), 20).tolist()
    assert not np.array_equal(few.x, load(DataSpec(source="synthetic", clients=5, rows=20), 2).x)


def test_loading_leaves_global_random_numbers_alone() -> None:
    """Neither numpy's nor torch's global generator moves."""
    import torch

    np.random.seed(3)
    before = (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist())  # type: ignore[index]  # the legacy tuple
    load(DataSpec(source="synthetic"), 1)
    load(DataSpec(), 1)
    assert (np.random.get_state()[1].tolist(), torch.get_rng_state().tolist()) == before  # type: ignore[index]  # as above


def test_too_large_a_synthetic_set_is_refused_before_it_is_made() -> None:
    """Terabytes are asked for in one line of TOML; the answer is an error, not a swap storm."""
    with pytest.raises(DataError, match=r"take [\d,]+ bytes; at most"):
        load(DataSpec(source="synthetic", clients=1_000_000, rows=10_000, features=1000), 1)


def test_bytes_are_images_channels_first(tmp_path: Path) -> None:
    """[n, h, w] and [n, h, w, c] of bytes become [n, c, h, w] of floats between 0 and 1."""
    x = np.random.default_rng(0).integers(0, 256, (20, 4, 6, 3), dtype=np.uint8)
    y = np.arange(20) % 2
    rows = load(_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y), 1, "cnn")
    assert rows.x.shape == (20, 3, 4, 6)
    assert np.allclose(rows.x[5, 2, 1, 3] * 255, x[5, 1, 3, 2])
    grey = load(_npz(tmp_path, x_train=x[..., 0], y_train=y, x_test=x[..., 0], y_test=y), 1, "cnn")
    assert grey.x.shape == (20, 1, 4, 6)
    series = load(_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y), 1, "gru")
    assert series.x.shape == (20, 4, 18)
    assert np.allclose(series.x[5, 1].reshape(3, 6) * 255, x[5, 1].T)  # step 1 is row 1, one colour after the other


def test_a_gru_reads_an_image_row_by_row(tmp_path: Path) -> None:
    """Step t of the sequence is row t of the picture."""
    x = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    rows = load(_npz(tmp_path, x_train=x, y_train=[0, 1], x_test=x, y_test=[0, 1]), 1, "gru")
    assert np.allclose(rows.x * 255, x)
    assert rows.kind == "sequence"


def test_tokens(tmp_path: Path) -> None:
    """Whole numbers with a vocabulary, or for a gru, are tokens: int64, unscaled, checked against the vocabulary."""
    x = np.random.default_rng(0).integers(0, 5, (20, 6), dtype=np.uint8)
    y = np.arange(20) % 2
    rows = load(_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y, vocab=list("abcdefg")), 1, "gru")
    assert (rows.kind, rows.vocabulary, str(rows.x.dtype)) == ("tokens", 7, "int64")
    assert np.array_equal(rows.x, x)
    assert load(_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y), 1, "gru").vocabulary == 5
    assert load(_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y), 1, "mlp").kind == "vector"
    with pytest.raises(DataError, match=r"tokens, which mlp cannot read; take model.kind = .gru."):
        load(_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y, vocab=list("abcdefg")), 1, "mlp")
    assert load(_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y, vocab=list("abcde")), 1, "gru").vocabulary == 5
    with pytest.raises(DataError, match="tokens run from 0 to 4; right is 0 to 3"):
        load(_npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y, vocab=list("abcd")), 1, "gru")


def test_scaling_of_floats(tmp_path: Path) -> None:
    """`auto` leaves ordinary floats alone and standardises large or tiny ones by the training rows; constants are 0."""
    arrays = _vectors()
    assert np.array_equal(load(_npz(tmp_path, **arrays), 1).x, arrays["x_train"])
    large = {**arrays, "x_train": arrays["x_train"] * 100 + 7, "x_test": arrays["x_test"] * 100 + 9}
    large["x_train"][:, 0] = 5.0
    rows = load(_npz(tmp_path, **large), 1)
    assert np.allclose(rows.x[:, 1:].mean(0), 0, atol=1e-5)
    assert np.allclose(rows.x[:, 1:].std(0), 1, atol=1e-5)
    assert (rows.x[:, 0] == 0).all()
    expected = (large["x_test"][:, 1] - large["x_train"][:, 1].mean()) / large["x_train"][:, 1].std()
    assert np.allclose(rows.x_test[:, 1], expected, atol=1e-5)
    spec = _npz(tmp_path, **large)
    assert np.array_equal(load(DataSpec(source=spec.source, scale="none"), 1).x, large["x_train"])
    tiny = {**arrays, "x_train": arrays["x_train"] / 1000}
    assert np.allclose(load(_npz(tmp_path, **tiny), 1).x.std(0), 1, atol=1e-4)


def test_standard_scaling_is_a_channel_at_a_time(tmp_path: Path) -> None:
    """Sequences are standardised a channel, over rows and time."""
    x = np.random.default_rng(0).normal(5, 3, (30, 10, 2)).astype(np.float32)
    y = np.arange(30) % 2
    spec = _npz(tmp_path, x_train=x, y_train=y, x_test=x, y_test=y)
    rows = load(DataSpec(source=spec.source, scale="standard"), 1, "gru")
    assert rows.kind == "sequence"
    assert np.allclose(rows.x.mean((0, 1)), 0, atol=1e-5)
    assert np.allclose(rows.x.std((0, 1)), 1, atol=1e-5)
    assert load(spec, 1, "cnn").x.shape == (30, 1, 10, 2)
    assert load(spec, 1, "mlp").x.shape == (30, 20)


def test_missing_numbers_are_counted_and_placed(tmp_path: Path) -> None:
    """NaN and infinities are refused with how many there are and where the first is, in either split."""
    arrays = _vectors()
    arrays["x_train"][[4, 9], 1] = np.nan
    arrays["x_train"][9, 2] = np.inf
    with pytest.raises(DataError, match=r"x_train holds 3 values .* in 2 of 40 rows \(the first is row 4\)"):
        load(_npz(tmp_path, **arrays), 1)
    arrays = _vectors()
    arrays["x_test"] = arrays["x_test"].astype(np.float64)
    arrays["x_test"][3] = 1e300  # infinite once it is float32
    with pytest.raises(DataError, match=r"x_test holds 3 values .* in 1 of 10 rows"):
        load(_npz(tmp_path, **arrays), 1)


REFUSED: list[tuple[str, object, str]] = [
    ("y_train", np.linspace(0, 1, 40), "y_train is floats: this is classification, not regression"),
    ("y_train", np.arange(39) % 2, r"y_train has the shape \[39\]; right is one label for each of 40 rows"),
    ("y_train", np.arange(40) - 1, "y_train holds the label -1"),
    ("y_train", np.full(40, 10**6), "holds the label 1000000; right are labels below"),
    ("y_train", np.array(["cat"] * 40), "y_train is of type <U3"),
    ("x_train", np.array(["a text"] * 40), "x_train holds text"),
    ("x_train", np.zeros((40, 3), complex), "x_train is of type complex128"),
    ("x_train", np.zeros(40), r"x_train has the shape \[40\]; right are \[n, features\]"),
    ("x_train", np.zeros((40, 0)), "is empty or larger than"),
    ("x_test", np.zeros((10, 4), np.float32), r"x_test has rows of \[4\] float32, x_train of \[3\] float32"),
    ("x_test", np.zeros((9, 3), np.float32), r"y_test has the shape \[10\]; right is one label for each of 9 rows"),
    ("client", np.zeros(40), "client is float64 of shape"),
    ("client", np.arange(39), "right is one whole number for each of 40 training rows"),
    ("client", np.full(40, -2), "client runs from -2 to -2; right is 0 and up"),
]


@pytest.mark.parametrize(("key", "array", "words"), REFUSED, ids=[f"{key}: {words[:30]}" for key, _, words in REFUSED])
def test_refused_with_what_would_be_right(tmp_path: Path, key: str, array: object, words: str) -> None:
    """Labels that are no classes, rows that are no numbers and lengths that differ are named."""
    with pytest.raises(DataError, match=words):
        load(_npz(tmp_path, **{**_vectors(), key: array}), 1)


def test_one_class_only_is_refused(tmp_path: Path) -> None:
    """There is nothing to tell apart."""
    arrays = {**_vectors(), "y_train": np.zeros(40, int), "y_test": np.zeros(10, int)}
    with pytest.raises(DataError, match="labels reach 0: right are 2 to"):
        load(_npz(tmp_path, **arrays), 1)


def test_vectors_do_not_suit_every_model(tmp_path: Path) -> None:
    """A cnn needs images, a gru sequences: the error says so and names a model that fits."""
    for model in ("cnn", "gru"):
        with pytest.raises(DataError, match=r"vectors, but a .* take model\.kind = .mlp."):
            load(_npz(tmp_path, **_vectors()), 1, model)


def test_a_source_without_test_rows_lends_a_fifth(tmp_path: Path) -> None:
    """Natural clients stay with their rows when some are held apart."""
    arrays = _vectors()
    both = {"x_train": arrays["x_train"], "y_train": arrays["y_train"], "client": np.arange(40)}
    rows = load(_npz(tmp_path, **both), 1)
    assert (len(rows.x), len(rows.x_test)) == (32, 8)
    assert rows.client is not None
    assert np.array_equal(rows.x, arrays["x_train"][rows.client])
    with pytest.raises(DataError, match="2 rows are too few"):
        load(_npz(tmp_path, x_train=np.zeros((2, 3)), y_train=[0, 1]), 1)
