"""`fedvitals completion SHELL`: a script that completes commands and options, made from the commands themselves."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from typing import NamedTuple

from fedvitals.show.cli.bench import benches
from fedvitals.show.cli.command import NAMES, load, parser_of

name = "completion"
summary = "print a completion script for bash, zsh or fish"
examples = (
    "fedvitals completion bash > ~/.local/share/bash-completion/completions/fedvitals",
    "fedvitals completion zsh > ~/.zfunc/_fedvitals        # a folder in $fpath",
    "fedvitals completion fish > ~/.config/fish/completions/fedvitals.fish",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("shell", metavar="SHELL", choices=tuple(SCRIPTS), help="bash, zsh or fish")


def run(args: argparse.Namespace) -> int:
    print(SCRIPTS[args.shell](grammar()), end="")
    return 0


class Option(NamedTuple):
    flag: str
    help: str
    value: str  # what follows it: "" for nothing, "folder", or "other"
    repeats: bool = False


class Verb(NamedTuple):
    """One command, as completion sees it."""

    name: str
    summary: str
    options: tuple[Option, ...]
    words: tuple[str, ...]  # what may stand as its argument, where that is known
    files: bool  # its argument is a file


def grammar() -> list[Verb]:
    return [_verb(name) for name in NAMES]


def _verb(name: str) -> Verb:
    command = load(name)
    actions = parser_of(command)._actions  # argparse has no public way to read a parser back
    flags = [action for action in actions if action.option_strings]
    arguments = [action for action in actions if not action.option_strings]
    metavars = [str(action.metavar) for action in arguments]
    words = [str(word) for action in arguments for word in action.choices or ()]
    words += [word for metavar in metavars for word in KNOWN_WORDS.get(metavar, list)()]
    options = tuple(_option(action) for action in flags)
    return Verb(command.name, command.summary, options, tuple(words), files="JOB" in metavars)


def _option(action: argparse.Action) -> Option:
    repeats = isinstance(action, argparse._AppendAction)
    return Option(action.option_strings[-1], action.help or "", _value(action), repeats)


def _value(action: argparse.Action) -> str:
    if action.nargs == 0:
        return ""
    return "folder" if action.metavar == "FOLDER" else "other"


def bash(verbs: list[Verb]) -> str:
    cases = "\n".join(
        f"        {verb.name}) words='{' '.join((*(one.flag for one in verb.options), *verb.words))}'"
        f"{'; files=1' if verb.files else ''} ;;"
        for verb in verbs
    )
    folders = "|".join(sorted({one.flag for verb in verbs for one in verb.options if one.value == "folder"}))
    others = "|".join(sorted({one.flag for verb in verbs for one in verb.options if one.value == "other"}))
    return f"""\
# bash completion for fedvitals
_fedvitals() {{
    local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD-1]}} words= files=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W '{" ".join(verb.name for verb in verbs)} --help --version' -- "$current"))
        return
    fi
    case $previous in
        {folders}) COMPREPLY=($(compgen -d -- "$current")); return ;;
        {others}) return ;;
    esac
    case ${{COMP_WORDS[1]}} in
{cases}
    esac
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [ -n "$files" ] && [ "${{current#-}}" = "$current" ]; then
        COMPREPLY+=($(compgen -f -X '!*.toml' -- "$current") $(compgen -d -- "$current"))
    fi
}}
complete -o filenames -F _fedvitals fedvitals
"""


def zsh(verbs: list[Verb]) -> str:
    commands = "\n".join(f"        {_quoted(f'{verb.name}:{verb.summary}')}" for verb in verbs)
    cases = "\n".join(_zsh_case(verb) for verb in verbs)
    return f"""\
#compdef fedvitals
_fedvitals() {{
    local -a commands=(
{commands}
    )
    if (( CURRENT == 2 )); then
        _describe command commands
        return
    fi
    shift words
    (( CURRENT-- ))
    case $words[1] in
{cases}
    esac
}}
if [ "$funcstack[1]" = _fedvitals ]; then _fedvitals "$@"; else compdef _fedvitals fedvitals; fi
"""


def _zsh_case(verb: Verb) -> str:
    endings = {"": "", "folder": ":folder:_files -/", "other": ":value:"}
    specs = [
        f"{'*' if one.repeats else ''}{one.flag}[{_zsh_text(one.help)}]{endings[one.value]}" for one in verb.options
    ]
    if verb.words:
        specs.append(f"1:word:({' '.join(verb.words)})")
    elif verb.files:
        specs.append('1:job:_files -g "*.toml"')
    return f"        {verb.name}) _arguments {' '.join(_quoted(spec) for spec in specs)} ;;"


def _zsh_text(text: str) -> str:
    """`[`, `]` and `:` would end the explanation."""
    return "".join(f"\\{one}" if one in "[]:\\" else one for one in text)


def fish(verbs: list[Verb]) -> str:
    lines = ["# fish completion for fedvitals", "complete -c fedvitals -f"]
    for verb in verbs:
        lines.append(f"complete -c fedvitals -n __fish_use_subcommand -a {verb.name} -d {_quoted(verb.summary)}")
        here = f"complete -c fedvitals -n '__fish_seen_subcommand_from {verb.name}'"
        lines += [f"{here} {_fish_option(one)}" for one in verb.options]
        if verb.words:
            lines.append(f"{here} -a {_quoted(' '.join(verb.words))}")
        if verb.files:
            lines.append(f"{here} -F")
    return "\n".join(lines) + "\n"


def _fish_option(one: Option) -> str:
    endings = {"": "", "folder": " -r -a '(__fish_complete_directories)'", "other": " -r"}
    return f"-l {one.flag.removeprefix('--')} -d {_quoted(one.help)}{endings[one.value]}"


def _quoted(text: str) -> str:
    """In single quotes, for any of the three shells."""
    return "'" + text.replace("'", "'\\''") + "'"


KNOWN_WORDS: dict[str, Callable[[], Iterable[str]]] = {"RUN": lambda: ["last"], "NAME": benches}
SCRIPTS = {"bash": bash, "zsh": zsh, "fish": fish}
