"""Arguments that several commands share, said once so that they mean the same everywhere."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from fedvitals.errors import FedvitalsError

if TYPE_CHECKING:
    from fedvitals.settings import Settings
    from fedvitals.store.protocol import RunReader, Store


def add_run(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("id", metavar="RUN", help="a run's id, the start of it, its name, or `last`")


def add_json(parser: argparse.ArgumentParser, what: str = "print JSON instead of tables") -> None:
    parser.add_argument("--json", action="store_true", help=what)


def add_dir(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dir", metavar="FOLDER", help="the folder that holds the runs (default: .fedvitals)")


def settings_of(args: argparse.Namespace, **flags: Any) -> Settings:
    """The settings in force, with this command line's flags."""
    from fedvitals.settings import resolve

    if getattr(args, "dir", None) is not None:
        flags["dir"] = args.dir
    return resolve(flags=flags)


def store_of(args: argparse.Namespace) -> Store:
    from fedvitals.store import open_store

    return open_store(settings_of(args))


@contextmanager
def opened(args: argparse.Namespace) -> Iterator[RunReader]:
    """The run that RUN names, for as long as it is read."""
    reader = store_of(args).open(args.id)
    try:
        yield reader
    finally:
        reader.close()


def next_command(words: str, settings: Settings, *, on_store: bool = True) -> str:
    """A command to type next, as it works from here: from the environment that is in use, on the same folder."""
    return f"{_program()} {words}{_elsewhere(settings) if on_store else ''}"


def spoken(run_id: str, settings: Settings) -> Callable[[str], str]:
    """Makes an action's text one that works from here: `RUN` is this run, and commands are found and find it."""
    program, elsewhere = _program(), _elsewhere(settings)
    run = re.compile(r"(\bfedvitals [a-z]+ )?\bRUN\b")  # in one go: a run's own name may hold the word
    command = re.compile(r"^fedvitals (?=[a-z])")

    def named(found: re.Match[str]) -> str:
        return f"{found[1]}{run_id}{elsewhere}" if found[1] else run_id

    return lambda text: command.sub(lambda _: f"{program} ", run.sub(named, text))


def _elsewhere(settings: Settings) -> str:
    """The flag that a command needs to find the same folder; nothing where it would anyway."""
    import shlex

    from fedvitals.settings import BY_NAME
    from fedvitals.show.words import safe

    found = settings.dir == BY_NAME["dir"].default or "FEDVITALS_DIR" in os.environ
    return "" if found else f" --dir {shlex.quote(safe(settings.dir))}"


def _program() -> str:
    """`fedvitals` where the shell would find it, else the way this process was started."""
    import shutil
    import sys

    if shutil.which("fedvitals"):
        return "fedvitals"
    started = os.path.relpath(sys.argv[0])
    if os.path.basename(started) == "fedvitals" and os.access(started, os.X_OK):
        return started
    return f"{os.path.relpath(sys.executable)} -m fedvitals"


def positive(text: str) -> int:
    """A whole number of at least 1, for argparse."""
    return _whole(text, 1)


def natural_number(text: str) -> int:
    """A whole number of at least 0, for argparse."""
    return _whole(text, 0)


def _whole(text: str, least: int) -> int:
    try:
        value = int(text)
    except ValueError:
        value = least - 1
    if value < least:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of at least {least}")
    return value


def assignments(pairs: list[str]) -> dict[str, str]:
    """`--set key=value` as given, checked for form; the job checks the rest."""
    changes: dict[str, str] = {}
    for pair in pairs:
        key, equals, value = pair.partition("=")
        if not equals or not key.strip():
            raise FedvitalsError(f"--set {pair!r} is not key=value; for example --set train.rounds=5")
        changes[key.strip()] = value.strip()
    return changes
