"""The table of names: nothing that is recorded goes unnamed, and nothing is named twice."""

from __future__ import annotations

import dataclasses
import re

import pytest

from fedvitals import vocabulary
from fedvitals.conventions import AGGREGATE, BY_NAME, CONVENTIONS, PUBLIC, SENSITIVE, Convention

# Fields that say where a record belongs, or that are carried by a span's own start and end: they need no name outside.
STRUCTURE = {
    "Round": {"start_ns", "end_ns", "error"},
    "Participation": {"round", "start_ns", "end_ns", "block", "block_row", "metrics"},
    "Evaluation": {"round", "at_ns", "split", "client", "metrics"},
    "ResourceSample": {"at_ns", "pid", "device"},
    "TensorStats": {"layer", "size"},
}


def _fields(record: type) -> set[str]:
    if dataclasses.is_dataclass(record):
        return {one.name for one in dataclasses.fields(record)}
    return set(record._fields)  # type: ignore[attr-defined]  # every other record is a named tuple


@pytest.mark.parametrize("record", sorted(STRUCTURE))
def test_every_measured_field_has_a_name(record: str) -> None:
    """A number that is recorded can be exported and looked up."""
    named = {one.field.partition(".")[2] for one in CONVENTIONS if one.field.startswith(f"{record}.")}
    assert _fields(getattr(vocabulary, record)) - named == STRUCTURE[record]


@pytest.mark.parametrize("convention", [one for one in CONVENTIONS if one.field], ids=lambda one: one.name)
def test_a_name_points_to_a_field_that_exists(convention: Convention) -> None:
    """`Record.field` is one of the vocabulary's."""
    record, _, field = convention.field.partition(".")
    assert field in _fields(getattr(vocabulary, record))


def test_names_are_unique_and_plain() -> None:
    """Lower case, dots and underscores; each once; with a meaning that ends as a sentence."""
    assert len(BY_NAME) == len(CONVENTIONS)
    assert all(re.fullmatch(r"[a-z][a-z0-9_.]*", one.name) for one in CONVENTIONS)
    assert all(one.meaning.endswith(".") and one.unit for one in CONVENTIONS)
    assert {one.kind for one in CONVENTIONS} == {"metric", "span", "attribute"}
    assert {one.sensitivity for one in CONVENTIONS} == {PUBLIC, AGGREGATE, SENSITIVE}


def test_every_phase_is_a_span() -> None:
    """A phase of the vocabulary has its line in the table."""
    spans = {one.name for one in CONVENTIONS if one.kind == "span"}
    assert set(vocabulary.PHASES) <= spans


def test_sketches_are_sensitive() -> None:
    """What could be used to compare clients' data is marked so."""
    sketches = [one for one in CONVENTIONS if "sketch" in one.name or one.field.startswith("UpdateBlock.unit")]
    assert len(sketches) >= 4
    assert all(one.sensitivity == SENSITIVE for one in sketches)
