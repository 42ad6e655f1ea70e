"""The door of the command line: finds the command, runs it, and turns what goes wrong into a line and an exit code."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Sequence

from fedvitals.errors import EXIT_BAD_INPUT, EXIT_INTERRUPTED, FedvitalsError, nearest
from fedvitals.show.cli.command import NAMES, load, parser_of

EXIT_BROKEN_PIPE = 141  # what a shell reports for a program that wrote into a closed pipe

OVERVIEW = """\
fedvitals records what happens inside federated training.

usage: fedvitals COMMAND [options]

commands:
{commands}

options:
  -h, --help     this help; `fedvitals COMMAND --help` has a command's own, with examples
  --version      the version

To see it at work: fedvitals demo
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; gives the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    _fill_closed_streams()
    if isinstance(sys.stdout, io.TextIOWrapper):  # a client's name may hold what an old terminal has no letter for
        sys.stdout.reconfigure(errors="backslashreplace")
    if words[:1] != ["bench"] and "torch" not in sys.modules:  # others are measured as they come
        # Threads that wait for each other give their core away: those that spin instead, as OpenMP's do unless told,
        # took ten times as long where something else wanted the core. It listens only while torch is being loaded.
        os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        code = _dispatch(words)
        sys.stdout.flush()  # so that a closed pipe is noticed here, where it is handled
        return code
    except FedvitalsError as error:
        print(f"fedvitals: {_one_line(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("fedvitals: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        _stop_writing()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno != errno.ENOSPC or error.filename is not None:
            raise
        _stop_writing()
        print("fedvitals: the output could not be written: no space is left where it goes", file=sys.stderr)
        return EXIT_BAD_INPUT


def _fill_closed_streams() -> None:
    """A service may be started with stdout or stderr closed: Python has none then, and nobody misses what is said."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w", encoding="utf-8"))  # noqa: SIM115  (for as long as we run)


def _stop_writing() -> None:
    """The interpreter flushes stdout once more at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _dispatch(words: list[str]) -> int:
    if not words or words[0] in ("-h", "--help"):
        print(overview(), end="")
        return 0
    if words[0] == "--version":
        import fedvitals

        print(f"fedvitals {fedvitals.__version__}")
        return 0
    if words[0] not in NAMES:
        return _unknown(words[0])
    command = load(words[0])
    return command.run(parser_of(command).parse_args(words[1:]))


def overview() -> str:
    """The help of `fedvitals` itself: a line a command."""
    return OVERVIEW.format(commands="\n".join(f"  {name:<14} {load(name).summary}" for name in NAMES))


def _unknown(word: str) -> int:
    kind = "option" if word.startswith("-") else "command"
    hint = "; see `fedvitals --help`" if kind == "option" else nearest(word, list(NAMES))
    print(f"fedvitals: there is no {kind} {word!r}{hint}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _one_line(error: FedvitalsError) -> str:
    from fedvitals.show.words import safe

    return safe(" ".join(str(error).split()), 2000)
