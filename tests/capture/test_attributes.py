"""Attributes and metrics as JSON: bounded, always readable, and no way out for data."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.capture.attributes import LONGEST, as_json
from fedvitals.capture.shapes import shapes_of
from fedvitals.store.awkward import FLOATS, TEXTS

LEAVES = st.none() | st.booleans() | st.integers() | FLOATS | TEXTS | st.binary(max_size=5)
VALUES = st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4))


@given(st.dictionaries(st.text(max_size=30) | st.integers(), VALUES, max_size=80))
def test_anything_becomes_bounded_json_that_can_be_read_back(values: dict[Any, Any]) -> None:
    """Strict JSON, without NaN, within its bound; what does not fit is counted."""
    text = as_json(values)
    assert len(text) <= LONGEST

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    if len(values) <= 20 and "left_out" not in found:
        assert {str(key)[:200] for key in values} == set(found)


@given(st.dictionaries(st.text(max_size=30), VALUES, max_size=80))
def test_entries_that_are_json_come_first_and_are_never_left_out(values: dict[Any, Any]) -> None:
    """Within the same bound, and the others are counted as without them."""
    text = as_json(values, '"rss_bytes": [1, 2, 3]')
    assert len(text) <= LONGEST
    assert text.startswith('{"rss_bytes": [1, 2, 3]')
    if "rss_bytes" not in values and "left_out" not in values:
        found = json.loads(text)
        assert len(values) == len(found) - 1 - ("left_out" in found) + found.get("left_out", 0)


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (torch.tensor(0.5), 0.5),
        (torch.tensor([3]), 3),
        (np.float32(0.25), 0.25),
        (np.int64(7), 7),
        (np.array([[1.5]]), 1.5),
        (torch.zeros(2, 3), "(2, 3) float32"),
        (np.zeros((4,), np.int8), "(4,) int8"),
        ([torch.zeros(2), {"a": np.zeros(3)}], ["(2,) float32", {"a": "(3,) float64"}]),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
        (1 << 4096, hex(1 << 4096)),
        ((1, "a", None, True), [1, "a", None, True]),
        ([[[[[["deep"]]]]]], [[[["..."]]]]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_are_kept_and_tensors_only_described(value: Any, kept: Any) -> None:
    """A tensor of many values is its shape and type: its values stay where they are."""
    assert json.loads(as_json({"value": value})) == {"value": kept}


def test_what_goes_round_in_circles_comes_to_an_end() -> None:
    """A list that holds itself many times over."""
    loop: list[Any] = []
    loop += [loop] * 20
    assert len(as_json({"loop": loop, "after": 1})) <= LONGEST


def test_objects_that_misbehave_cost_only_themselves() -> None:
    """A `__str__` that raises."""

    class Rude:
        def __str__(self) -> str:
            raise ValueError("no")

    assert json.loads(as_json({"rude": Rude(), "good": 1, Rude(): 2})) == {
        "rude": "<Rude: ValueError>",
        "good": 1,
        "<Rude: ValueError>": 2,
    }


def test_shapes_are_found_however_nested_and_never_values() -> None:
    """Of dicts, lists, modules and tensors, up to a bound."""
    value = {
        "batch": (torch.full((2, 3), 12345.0), {"y": np.zeros(4, np.int16)}),
        "model": torch.nn.Linear(2, 1),
        "text": "12345",
        "many": [torch.zeros(1)] * 100,
    }
    found = shapes_of(value)
    assert found["batch.0"] == "(2, 3) float32"
    assert found["batch.1.y"] == "(4,) int16"
    assert found["model.weight"] == "(1, 2) float32"
    assert len(found) == 40
    assert "12345" not in str(found)
