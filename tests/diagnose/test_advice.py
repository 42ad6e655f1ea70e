"""What findings advise can be done: their commands are commands, and a client's name cannot change one."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path

import fedvitals.diagnose
from fedvitals.diagnose.writing import changing, see_client
from fedvitals.show.cli.command import load, parser_of

FOLDER = Path(str(fedvitals.diagnose.__file__)).parent
AROUND = "7"  # stands for whatever a rule puts in


def _commands() -> set[str]:
    """Texts of the rules that begin as a command does, with a number for each value put in."""
    found = set()
    for path in FOLDER.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        pieces = {id(part) for node in nodes if isinstance(node, ast.JoinedStr) for part in node.values}
        for node in nodes:
            if id(node) in pieces:
                continue
            parts = node.values if isinstance(node, ast.JoinedStr) else [node]
            texts = [part.value if isinstance(part, ast.Constant) else AROUND for part in parts]
            text = "".join(one for one in texts if isinstance(one, str))
            if text.startswith("fedvitals ") and " RUN" in text:
                found.add(text)
    return found


def test_every_command_that_is_advised_exists() -> None:
    """With these arguments, too."""
    commands = _commands()
    assert len(commands) >= 3
    for command in commands:
        _, name, *words = shlex.split(command)
        parser_of(load(name)).parse_args(words)


def test_a_name_stays_one_word() -> None:
    """A client may be called anything: whoever pastes the command runs no other."""
    name = "x; rm -rf ~ '$(echo)'"
    assert shlex.split(see_client(name))[-1] == name


def test_what_changes_the_training_says_so() -> None:
    """None of these is safe to do on the side."""
    assert [(one.text, one.safe) for one in changing("clip", "wait")] == [("clip", False), ("wait", False)]
