"""The reference pages, made from the tables that the code itself works with: `python -m fedvitals.show.reference`.

`--check` writes nothing and exits 1 when a page is stale; a test does the same.
"""

from __future__ import annotations

import argparse
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import fedvitals
from fedvitals.conventions import CONVENTIONS, Convention
from fedvitals.diagnose import Rule
from fedvitals.diagnose.registry import FAMILIES, FAMILY_NAMES
from fedvitals.faults.registry import BY_KIND
from fedvitals.faults.spec import FaultSpec
from fedvitals.settings import SETTINGS, Setting
from fedvitals.show.cli.command import NAMES, load, parser_of
from fedvitals.show.explanations import one_line, page_parts
from fedvitals.show.markdown import code, page, table
from fedvitals.train.job import SECTIONS
from fedvitals.train.keys import Key, Section, described_range, shown

FOLDER = Path(__file__).resolve().parents[3] / "docs" / "reference"
FAULT_KEYS = {
    "kind": "Which fault: see [faults](faults.md).",
    "clients": "The clients it strikes, by id.",
    "share": "Instead of `clients`: a share of all, drawn once a run from the job's seed.",
    "from_round": "The first round it strikes in.",
    "until_round": "The last round it strikes in; left out: to the end.",
    "strength": "How strong, in the fault's own measure; left out: the fault's default.",
    "of": "`label-flip` only: is the strength a share of the client's classes, or of its rows?",
}
TOP_KEYS = {
    "name": "What the run is called; left out, the name of the data's source.",
    "seed": "Where all randomness comes from: the same job with the same seed gives the same final weights.",
}


def conventions_page() -> str:
    kinds = {"span": "Spans", "attribute": "Attributes", "metric": "Metrics"}
    parts = [f"## {title}\n\n{_conventions(kind)}" for kind, title in kinds.items()]
    introduction = (
        "Every name under which fedvitals records something. Units are UCUM. Sensitivity: `public` tells nothing of "
        "anyone's data; `aggregate` describes one client's training in numbers; `sensitive` could be used to compare "
        "or guess at clients' data, and can be switched off."
    )
    return page("Names of what is recorded", introduction, *parts)


def _conventions(kind: str) -> str:
    def row(one: Convention) -> tuple[str, ...]:
        return (code(one.name), code(one.unit), one.meaning, one.sensitivity, code(one.field))

    columns = ("name", "unit", "meaning", "sensitivity", "record")
    return table(columns, [row(one) for one in CONVENTIONS if one.kind == kind])


def settings_page() -> str:
    def row(one: Setting) -> tuple[str, ...]:
        allowed = ", ".join(map(code, one.choices)) or (
            f"{one.low:g} to {one.high:g}" if one.low is not None and one.high is not None else ""
        )
        return (code(one.name), code(one.environment), code(_toml(one.default)), allowed, one.meaning)

    introduction = (
        "A value is taken from the first of these that has it: the argument in code (`fedvitals.start(..., "
        "budget=0.01)`), the command line's flag, the environment, `[tool.fedvitals]` of the nearest `pyproject.toml`, "
        "the default. Anything unknown or impossible is refused, with the place it came from."
    )
    columns = ("setting", "environment", "default", "allowed", "meaning")
    return page("Settings", introduction, table(columns, [row(one) for one in SETTINGS]))


def job_page() -> str:
    introduction = (
        "A job is a TOML file (`fedvitals run job.toml`) or a `fedvitals.Job`. Every key has a default, so the "
        'smallest job is `[data]` with `source = "digits"`. `--set section.key=value` changes one key. Where a key '
        "says what this version can do, the other values are names that later versions fill."
    )
    top = [(code(name), meaning) for name, meaning in TOP_KEYS.items()]
    faults = [(code(one.name), code(_fault_default(one)), FAULT_KEYS[one.name]) for one in fields(FaultSpec)]
    return page(
        "Job files",
        introduction,
        "## Before the sections\n\n" + table(("key", "meaning"), top),
        *(_section(title, section) for title, section in SECTIONS.items()),
        "## [[faults]]\n\nOne table a fault.\n\n" + table(("key", "default", "meaning"), faults),
    )


def _section(title: str, section: type[Section]) -> str:
    keys: Sequence[Field[Any]] = fields(section)  # type: ignore[arg-type]  # every section is a dataclass
    rows = []
    for one in keys:
        limits: Key = one.metadata["key"]
        rows.append((code(one.name), code(_toml(one.default)), _allowed(limits), limits.meaning))
    columns = ("key", "default", "allowed", "meaning")
    return f"## [{title}]\n\n{inspect.getdoc(section)}\n\n{table(columns, rows)}"


def _allowed(limits: Key) -> str:
    words = [*map(code, limits.choices), *([limits.or_else] if limits.or_else else [])]
    described = ", ".join(words) or described_range(limits)
    built = ", ".join(code(shown(value)) for value in limits.built)
    return f"{described}; in this version: {built}" if described and built else described or built


def _toml(value: object) -> str:
    return shown(list(value)) if isinstance(value, tuple) else shown(value)


def _fault_default(one: Field[Any]) -> str:
    return "" if one.default in (MISSING, None, ()) else _toml(one.default)


def faults_page() -> str:
    rows = []
    for kind, fault in BY_KIND.items():
        default = "" if fault.default_strength is None else f"{fault.default_strength:g}"
        rows.append((code(kind), fault.imitates, fault.measures or "takes none", default, fault.finding))
    introduction = (
        "What can be made to go wrong, with `[[faults]]` in a [job](job.md). `finding` is the code under which a "
        "diagnosis reports it: see [findings](findings.md)."
    )
    columns = ("kind", "what it imitates", "strength is", "default", "finding")
    return page("Faults", introduction, table(columns, rows))


def findings_page() -> str:
    introduction = (
        "What a diagnosis can find, as `fedvitals explain CODE` tells it. Severity: `critical`, the model or the "
        "result is lost or wrong; `warning`, harm or waste that should be mended; `info`, worth knowing. A rule that "
        "cannot see what it needs says `not observable`, never that all is well. How to read a diagnosis: "
        "[read a diagnosis](../how-to/read-a-diagnosis.md)."
    )
    return page("Findings", introduction, *(_family(family, rules) for family, rules in FAMILIES.items() if rules))


def _family(family: str, rules: Sequence[Rule]) -> str:
    index = table(("code", "name", "what it is"), [(code(one.code), one.name, one_line(one)) for one in rules])
    return "\n\n".join([f"## {family} {FAMILY_NAMES[family]}", index, *(_finding(rule) for rule in rules)])


def _finding(rule: Rule) -> str:
    parts = [f"**{head}.** {text[:1].upper()}{text[1:]}" for head, text in page_parts(rule)]
    return "\n\n".join([f"### {rule.code} {rule.name}", *parts])


def commands_page() -> str:
    introduction = (
        "Results go to stdout, talk to stderr. Exit codes: 0 done; 1 done, and the answer is no; 2 could not do what "
        "was asked; 130 interrupted. `--json` documents carry `schema_version` 1; NaN and infinity become `null`. "
        "Colour is used at a terminal only, and not with `NO_COLOR`."
    )
    return page("Commands", introduction, *(_command(name) for name in NAMES))


def _command(name: str) -> str:
    command = load(name)
    rows = []
    for action in parser_of(command)._actions:  # argparse has no public way to read a parser back
        value = "" if action.nargs == 0 else f" {action.metavar}"
        words = f"{', '.join(action.option_strings)}{value}" if action.option_strings else str(action.metavar)
        rows.append((code(words), (action.help or "").replace("%%", "%")))
    examples = "\n".join(command.examples)
    summary = f"{command.summary[0].upper()}{command.summary[1:]}."
    return f"## fedvitals {name}\n\n{summary}\n\n{table(('argument', 'meaning'), rows)}\n\n```sh\n{examples}\n```"


def names_page() -> str:
    rows = []
    for name in fedvitals.__all__:
        value = getattr(fedvitals, name)
        text = (inspect.getdoc(value) or "").partition("\n\n")[0]
        home = value.__name__ if inspect.ismodule(value) else value.__module__
        rows.append((code(f"fedvitals.{name}"), code(home), text))
    introduction = (
        "What `import fedvitals` offers. Each name is loaded when it is first used; the import itself loads neither "
        "torch nor numpy."
    )
    return page("Public names", introduction, table(("name", "lives in", "what it is"), rows))


PAGES: Mapping[str, Callable[[], str]] = {
    "commands.md": commands_page,
    "job.md": job_page,
    "settings.md": settings_page,
    "faults.md": faults_page,
    "findings.md": findings_page,
    "conventions.md": conventions_page,
    "names.md": names_page,
}


def stale(folder: Path = FOLDER) -> list[str]:
    """Pages that are missing or differ from what the code says."""
    return [name for name, made in PAGES.items() if _text(folder / name) != made()]


def _text(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.is_file() else None


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fedvitals.show.reference", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 when a page is stale")
    parser.add_argument("--to", metavar="FOLDER", type=Path, default=FOLDER, help="where the pages are")
    args = parser.parse_args(argv)
    old = stale(args.to)
    for name in old:
        if args.check:
            print(f"stale: {args.to / name}", file=sys.stderr)
        else:
            args.to.mkdir(parents=True, exist_ok=True)
            (args.to / name).write_text(PAGES[name](), encoding="utf-8")
            print(f"written: {args.to / name}")
    return 1 if args.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
