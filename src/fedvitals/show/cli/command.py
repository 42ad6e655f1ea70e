"""What a command of the command line is, and which there are.

A command is a module of this folder with the name of the command. At its top it imports only what is light; what it
needs to do its work is imported in `run`, so that `fedvitals --help` costs nothing.
"""

from __future__ import annotations

import argparse
from importlib import import_module
from typing import Any, NoReturn, Protocol, cast, runtime_checkable

from fedvitals.errors import EXIT_BAD_INPUT

NAMES = (
    "demo",
    "run",
    "runs",
    "show",
    "doctor",
    "explain",
    "profile",
    "compare",
    "sweep",
    "optimise",
    "report",
    "export",
    "gc",
    "bench",
    "completion",
)  # in the order of the help


@runtime_checkable
class Command(Protocol):
    """One command."""

    name: str
    summary: str  # one line, no full stop
    examples: tuple[str, ...]  # command lines, shown below the help

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Say which arguments it takes."""

    def run(self, args: argparse.Namespace) -> int:
        """Do it; gives the exit code."""


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one line in the words of the rest."""

    def error(self, message: str) -> NoReturn:
        self.exit(EXIT_BAD_INPUT, f"{self.prog}: {message} (see `{self.prog} --help`)\n")


def load(name: str) -> Command:
    """The module of one command."""
    return cast(Command, import_module(f"fedvitals.show.cli.{name}"))


def parser_of(command: Command, **options: Any) -> Parser:
    """The command's own parser, with its examples."""
    examples = "\n".join(f"  {line}" for line in command.examples)
    parser = Parser(
        prog=f"fedvitals {command.name}",
        description=f"{command.summary[0].upper()}{command.summary[1:]}.",
        epilog=f"examples:\n{examples}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,  # a script that says --q today must not mean --quick tomorrow
        **options,
    )
    command.add_arguments(parser)
    return parser
