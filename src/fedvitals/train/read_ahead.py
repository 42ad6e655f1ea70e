"""Reading ahead: a source's next part is fetched in the background while this one is taken in."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from queue import Empty, Full, Queue
from typing import NamedTuple, TypeVar

T = TypeVar("T")
AHEAD = 2  # parts that wait at most: memory is bounded by them, whatever the source gives
LOOK_S = 0.1  # between two looks whether anybody still wants more


class _End(NamedTuple):
    """No more parts, or why there are none."""

    error: BaseException | None


def read_ahead(parts: Iterator[T], ahead: int = AHEAD) -> Iterator[T]:
    """The same parts in the same order, and whatever the source raises. Who stops early stops the source as well."""
    waiting: Queue[T | _End] = Queue(maxsize=ahead)
    enough = threading.Event()
    thread = threading.Thread(target=_fetch, args=(parts, waiting, enough), name="fedvitals-read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            part = waiting.get()
            if isinstance(part, _End):
                if part.error is not None:
                    raise part.error
                return
            yield part
    finally:
        enough.set()
        _drained(waiting)
        thread.join()


def _fetch(parts: Iterator[T], waiting: Queue[T | _End], enough: threading.Event) -> None:
    try:
        for part in parts:
            if not _put(waiting, part, enough):
                return
    except BaseException as error:  # it is raised where the parts are wanted
        _put(waiting, _End(error), enough)
    else:
        _put(waiting, _End(None), enough)


def _put(waiting: Queue[T | _End], part: T | _End, enough: threading.Event) -> bool:
    """Whether it was still wanted."""
    while not enough.is_set():
        try:
            waiting.put(part, timeout=LOOK_S)
        except Full:
            continue
        return True
    return False


def _drained(waiting: Queue[T | _End]) -> None:
    """Make room, so that nobody waits for it."""
    try:
        while True:
            waiting.get_nowait()
    except Empty:
        return
