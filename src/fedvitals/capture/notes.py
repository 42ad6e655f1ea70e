"""What a training only notes down, to be made records of together, a few times a second, by the recorder's own thread.

Making a record of each phase when it ends, alone and with cold caches, costs a training several times as much. A round
that is short is told of once, after it is over; of one that goes on, its beginning is told.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedvitals.vocabulary import Evaluation, Record, ResourceSample, Span

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from fedvitals.capture.rounds import RoundSession

MOST = 512  # spans, or rounds, that wait; more are not left to the ticker


class Notes:
    """Any thread may note, and any may pass on."""

    def __init__(self, emit: Callable[[Sequence[Record]], None]) -> None:
        self._emit = emit
        self._noted: deque[tuple[Any, ...]] = deque()  # fields of spans; other records as they are
        self._begun: list[RoundSession] = []  # rounds of which nobody was told yet
        self._over: list[RoundSession] = []  # and those that ended meanwhile
        self._lock = threading.Lock()

    def span(self, fields: tuple[Any, ...]) -> None:
        self._noted.append(fields)
        if len(self._noted) > MOST:
            self.pass_on()

    def record(self, record: Evaluation | ResourceSample) -> None:
        """One that is made already and in no hurry: a transaction of its own would cost more than all it says."""
        self._noted.append(record)
        if len(self._noted) > MOST:
            self.pass_on()

    def begun(self, session: RoundSession) -> None:
        with self._lock:
            self._begun.append(session)

    def over(self, session: RoundSession) -> None:
        """It is to be told of as a whole."""
        with self._lock:
            if session in self._begun:
                self._begun.remove(session)
            self._over.append(session)
            many = len(self._over) > MOST
        if many:
            self.pass_on()

    def pass_on(self) -> bool:
        """Whether there was anything."""
        found: list[Record] = []
        with suppress(IndexError):  # another thread may take some
            while self._noted:
                one = self._noted.popleft()
                found.append(one if isinstance(one, Evaluation | ResourceSample) else Span._make(one))
        if found:
            self._emit(found)
        if not self._begun and not self._over:
            return bool(found)
        with self._lock:  # so that no beginning comes after its end
            begun, self._begun = self._begun, []
            over, self._over = self._over, []
            self._emit([*(session.beginning() for session in begun), *(session.whole() for session in over)])
        return True
