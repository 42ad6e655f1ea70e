"""Notes: every span becomes one record, and no round's beginning comes after its end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, cast

from fedvitals.capture.notes import MOST, Notes
from fedvitals.capture.rounds import RoundSession
from fedvitals.vocabulary import Evaluation, Record, Round, Span


class Begun:
    """Stands in for a round's session: tells of its beginning, and of all of it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def beginning(self) -> Round:
        return Round(self.number, 0, 0)

    def whole(self) -> Round:
        return Round(self.number, 0, 0, 1)


def session(number: int) -> RoundSession:
    return cast(RoundSession, Begun(number))


def fields(number: int) -> tuple[Any, ...]:
    return tuple(Span(number, None, "train", 0, 1))


def test_a_long_round_is_told_of_while_it_goes_on() -> None:
    """Its beginning once, and when it is over all of it; of one that was over before anybody looked, only that."""
    told: list[Record] = []
    notes = Notes(told.extend)
    long, short = session(0), session(1)
    for one in (long, short):
        notes.begun(one)
    notes.over(short)
    assert notes.pass_on()
    assert [(cast(Round, one).number, cast(Round, one).end_ns) for one in told] == [(0, None), (1, 1)]
    notes.over(long)
    assert notes.pass_on()
    assert not notes.pass_on()
    assert [(cast(Round, one).number, cast(Round, one).end_ns) for one in told[2:]] == [(0, 1)]


def test_many_rounds_do_not_wait_for_the_ticker() -> None:
    """A bounded number of those that are over waits."""
    told: list[Record] = []
    notes = Notes(told.extend)
    for number in range(2 * MOST):
        notes.over(session(number))
    assert 0 < 2 * MOST - len(told) <= MOST


def test_many_spans_do_not_wait_for_the_ticker() -> None:
    """A bounded number waits, and none is lost or told twice, whoever passes them on."""
    batches: list[Sequence[Record]] = []
    notes = Notes(batches.append)
    for number in range(3 * MOST):
        notes.span(fields(number))
    assert batches
    assert 3 * MOST - sum(map(len, batches)) <= MOST
    notes.pass_on()
    assert [cast(Span, one).id for some in batches for one in some] == list(range(3 * MOST))


def test_threads_that_note_and_pass_on_lose_nothing() -> None:
    """Four that note, two that pass on."""
    batches: list[Sequence[Record]] = []
    notes, done = Notes(batches.append), threading.Event()

    def passing() -> None:
        while not done.is_set():
            notes.pass_on()

    def noting(first: int) -> None:
        for number in range(first, first + 2_000):
            notes.span(fields(number))

    passers = [threading.Thread(target=passing) for _ in range(2)]
    noters = [threading.Thread(target=noting, args=(first,)) for first in range(0, 8_000, 2_000)]
    for one in passers + noters:
        one.start()
    for one in noters:
        one.join()
    done.set()
    for one in passers:
        one.join()
    notes.pass_on()
    assert sorted(cast(Span, one).id for some in batches for one in some) == list(range(8_000))


def test_other_records_wait_no_longer_than_spans() -> None:
    """Nobody passes on for a run that is over: what is noted then goes on when there is much of it."""
    told: list[Record] = []
    notes = Notes(told.extend)
    for number in range(2 * MOST):
        notes.record(Evaluation(round=number, at_ns=0))
    assert 0 < 2 * MOST - len(told) <= MOST
