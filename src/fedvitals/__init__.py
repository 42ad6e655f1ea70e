"""fedvitals records what happens inside federated training, and says what is wrong and who caused it.

This module only exports. Each name is imported when it is first used, so `import fedvitals` loads neither torch nor
numpy; the table below says where each one lives, and the block above it tells the same to type checkers.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fedvitals import capture as capture
    from fedvitals import codecs as codecs
    from fedvitals import conventions as conventions
    from fedvitals import diagnose as diagnose
    from fedvitals import errors as errors
    from fedvitals import faults as faults
    from fedvitals import settings as settings
    from fedvitals import store as store
    from fedvitals import testing as testing
    from fedvitals import train as train
    from fedvitals import vocabulary as vocabulary
    from fedvitals.capture.remote import client_session as client_session
    from fedvitals.diagnose.diagnosis import Diagnosis as Diagnosis
    from fedvitals.errors import FedvitalsError as FedvitalsError
    from fedvitals.run import Run as Run
    from fedvitals.run import start as start
    from fedvitals.settings import Settings as Settings
    from fedvitals.store import open_store as open_store
    from fedvitals.train.job import Job as Job
    from fedvitals.vocabulary import Action as Action
    from fedvitals.vocabulary import Finding as Finding
    from fedvitals.vocabulary import Grade as Grade
    from fedvitals.vocabulary import Level as Level
    from fedvitals.vocabulary import Outcome as Outcome
    from fedvitals.vocabulary import Severity as Severity
    from fedvitals.vocabulary import Status as Status

    __version__: str

_NAMES = {
    "fedvitals.run": ("start", "Run"),
    "fedvitals.capture.remote": ("client_session",),
    "fedvitals.train.job": ("Job",),
    "fedvitals.store": ("open_store",),
    "fedvitals.diagnose.diagnosis": ("Diagnosis",),
    "fedvitals.vocabulary": ("Finding", "Action", "Severity", "Grade", "Status", "Outcome", "Level"),
    "fedvitals.settings": ("Settings",),
    "fedvitals.errors": ("FedvitalsError",),
}
_MODULES = (
    "capture",
    "codecs",
    "conventions",
    "diagnose",
    "errors",
    "faults",
    "settings",
    "store",
    "testing",
    "train",
    "vocabulary",
)
_HOMES = {name: module for module, names in _NAMES.items() for name in names}
__all__ = [*_HOMES, *_MODULES]


if not TYPE_CHECKING:  # a type checker would take it as leave for any name

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(import_module(_HOMES[name]), name)
        elif name in _MODULES:
            value = import_module(f"fedvitals.{name}")
        elif name == "__version__":
            from importlib.metadata import version

            value = version("fedvitals")
        else:
            raise AttributeError(f"module 'fedvitals' has no attribute {name!r}")
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, "__version__"})
