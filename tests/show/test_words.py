"""Values as words: units that fit, and nothing that could move a terminal."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedvitals.show.words import fixed, instant, natural, number, plural, safe, seconds, size, whole


@given(st.text())
def test_safe_text_is_one_printable_line(text: str) -> None:
    """Whatever a stranger wrote, no character of it can do anything but be seen."""
    assert safe(text).isprintable()


@given(st.text(st.characters(categories=["L", "N", "P"]), max_size=200))
def test_honest_text_is_unchanged(text: str) -> None:
    """Printable words are shown as they are."""
    assert safe(text) == text


def test_control_characters_are_spelled_out() -> None:
    """An escape sequence is shown, not obeyed; so are line ends and writing-direction tricks."""
    assert safe("\x1b[2Jx\n\u202e\udc80") == "\\x1b[2Jx\\n\\u202e\\udc80"


def test_long_text_is_cut() -> None:
    """A name of a megabyte takes no more room than one of 200 characters, and says that it was cut."""
    assert safe("x" * 1_000_000) == "x" * 200 + "..."


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (3, "3"),
        (0.0, "0"),
        (1234.5, "1,234"),
        (0.12345, "0.123"),
        (12.345, "12.3"),
        (-0.5, "-0.500"),
        (1e-9, "1.00e-09"),
        (2.5e7, "2.50e+07"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_have_three_digits(value: float | None, words: str) -> None:
    """Three significant digits, an exponent only where a person would want one."""
    assert number(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (None, "-"),
        (0.00035, "350 us"),
        (0.0019, "1.9 ms"),
        (0.0123, "12 ms"),
        (3.44, "3.4 s"),
        (125, "2 m 05 s"),
        (3720, "1 h 02 m"),
    ],
)
def test_seconds_have_a_fitting_unit(value: float | None, words: str) -> None:
    """From microseconds to hours."""
    assert seconds(value) == words


@pytest.mark.parametrize(("value", "words"), [(None, "-"), (850, "850 B"), (12_300, "12.3 kB"), (4e15, "4000.0 TB")])
def test_sizes_have_a_fitting_unit(value: float | None, words: str) -> None:
    """By thousands, as disks are sold."""
    assert size(value) == words


def test_small_words() -> None:
    """Decimal places, whole numbers and plurals."""
    assert (fixed(0.5), fixed(None), fixed(math.nan), fixed(0.123, 2)) == ("0.500", "-", "nan", "0.12")
    assert (whole(12_345), whole(None)) == ("12,345", "-")
    assert (plural(1, "run"), plural(2, "run")) == ("1 run", "2 runs")


def test_an_impossible_instant_is_no_error() -> None:
    """A run's file may say it began in the year 50,000."""
    assert instant(10**30) == "-"
    assert instant(1_760_000_000 * 10**9).startswith("2025-10-0")


def test_ids_sort_as_people_count() -> None:
    """`client 2` before `client 10`, also with more digits than an int could be read from."""
    assert sorted(["10", "9", "a10", "a9", "1" * 5000], key=natural) == ["9", "10", "1" * 5000, "a9", "a10"]


@given(st.lists(st.text(st.characters(codec="utf-8"), max_size=8), max_size=8))
def test_any_ids_can_be_sorted(words: list[str]) -> None:
    """Mixtures of digits and letters compare without error, and sorting loses none."""
    assert sorted(sorted(words, key=natural)) == sorted(words)
