"""What is kept of an exception: words and a traceback, bounded, whatever the exception itself does."""

from __future__ import annotations

import traceback
from typing import Any

LONGEST_MESSAGE = 2_000
LONGEST_TRACEBACK = 32_768


def message_of(error: BaseException) -> str:
    """What it says; an exception that cannot say it is no reason to lose it."""
    try:
        return str(error)[:LONGEST_MESSAGE]
    except Exception as own:
        return f"<its text could not be had: {type(own).__name__}>"


def in_words(error: BaseException, longest: int = LONGEST_MESSAGE) -> str:
    """Kind and message in one line."""
    return f"{type(error).__name__}: {message_of(error)}"[:longest]


def traceback_of(error: BaseException) -> str | None:
    """The end of the traceback: the innermost frames are the ones wanted."""
    try:
        return "".join(traceback.format_exception(error))[-LONGEST_TRACEBACK:]
    except Exception:
        return None


def mark(error: BaseException) -> tuple[Any, ...]:
    """By which an exception is known again on its way out, without holding it: its frames hold the training's tensors.

    An id alone would not do, because it is soon used again.
    """
    frame = error.__traceback__
    while frame is not None and frame.tb_next is not None:
        frame = frame.tb_next
    place = None if frame is None else (frame.tb_frame.f_code.co_filename, frame.tb_lineno)
    return id(error), type(error), message_of(error), place
