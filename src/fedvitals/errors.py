"""What fedvitals raises. Each error says what was found, where, and what would be right."""

from __future__ import annotations

EXIT_FAILED = 1  # the command worked, and its answer is "no"
EXIT_BAD_INPUT = 2  # the command could not do what was asked
EXIT_INTERRUPTED = 130


class FedvitalsError(Exception):
    """Base of all our errors; the command line prints it in one line and exits with `exit_code`."""

    exit_code = EXIT_BAD_INPUT


class SettingsError(FedvitalsError):
    """A setting has an unknown name or an impossible value."""


class JobError(FedvitalsError):
    """A job asks for something that does not exist or cannot be."""


class DataError(JobError):
    """The data of a job is missing, malformed or too small."""


class StoreError(FedvitalsError):
    """A run or its database is missing, damaged, newer than this version, or cannot be written."""


class CodecError(FedvitalsError):
    """An update cannot be encoded, or bytes are not what this codec wrote."""


class UndecodableError(CodecError):
    """An update was encoded, and what arrived of it cannot be decoded."""


class TelemetryError(FedvitalsError):
    """Bytes from a client are not telemetry that this version understands."""


class TrainingError(FedvitalsError):
    """A training cannot go on: no client is left, or the model cannot be trained this way."""

    exit_code = EXIT_FAILED


class MissingExtraError(FedvitalsError):
    """A part that is not in the base install is needed."""

    def __init__(self, extra: str, purpose: str, module: str) -> None:
        super().__init__(
            f"{purpose} needs the package {module!r}, which is not installed: pip install 'fedvitals[{extra}]'"
        )
        self.extra = extra


def nearest(word: str, known: list[str]) -> str:
    """' (did you mean X?)' when a known word is close, else the list of what there is."""
    import difflib  # costs 5 ms: only when there is an error to write

    close = difflib.get_close_matches(word, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(sorted(known))}"
