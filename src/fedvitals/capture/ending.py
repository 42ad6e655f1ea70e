"""How a run ends: closed by its owner, by an exception, or by the end of the program."""

from __future__ import annotations

import sys

from fedvitals.capture.failures import in_words
from fedvitals.capture.recorder import Recorder
from fedvitals.vocabulary import Status


def close(recorder: Recorder, error: BaseException | None) -> None:
    if error is None or (isinstance(error, SystemExit) and not error.code):  # sys.exit() is no failure
        recorder.close(Status.FINISHED)
    else:
        recorder.close(Status.FAILED, {"error": in_words(error)})


def close_at_exit(recorder: Recorder, known: BaseException | None) -> None:
    """An exception that ended the program ended the run; one that a prompt showed before the run began did not."""
    error = uncaught()
    close(recorder, None if error is known else error)


def uncaught() -> BaseException | None:
    """The last exception that nobody caught. At a prompt that means little: the user goes on."""
    return None if hasattr(sys, "ps1") else getattr(sys, "last_value", None)
