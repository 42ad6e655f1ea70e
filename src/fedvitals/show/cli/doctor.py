"""`fedvitals doctor RUN`: what is wrong with a run, who caused it, and what to do."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from fedvitals.errors import EXIT_FAILED
from fedvitals.show.cli.options import add_dir, add_json, add_run, opened, settings_of, spoken

if TYPE_CHECKING:
    from fedvitals.diagnose import Diagnosis, Rule
    from fedvitals.diagnose.words import Spoken
    from fedvitals.show.baseline import Fingerprint
    from fedvitals.show.watching import Changes
    from fedvitals.store.protocol import RunReader
    from fedvitals.vocabulary import Finding

name = "doctor"
summary = "say what is wrong with a run, who caused it, and what to do"
examples = (
    "fedvitals doctor last",
    "fedvitals doctor last --watch",
    "fedvitals doctor last --select FL6 --fail-on critical     # only integrity; exit 1 when an update was poisoned",
    "fedvitals doctor last --ignore FL2,plateau --json | jq -r '.findings[].code'",
    "fedvitals doctor last --write-baseline known.json         # from now on: --baseline known.json",
)
NEVER = "never"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run(parser)
    for flag, meaning in (("--select", "only these rules: codes, families (FL6) or names"), ("--ignore", "not these")):
        parser.add_argument(flag, metavar="CODES", action="append", default=[], help=f"{meaning}; commas between them")
    parser.add_argument(
        "--fail-on",
        metavar="SEVERITY",
        choices=("info", "warning", "critical", NEVER),
        default="warning",
        help="exit 1 from this severity on: info, warning, critical or never (default: warning)",
    )
    parser.add_argument("--baseline", metavar="FILE", type=Path, help="findings that are known: count, do not show")
    parser.add_argument("--write-baseline", metavar="FILE", type=Path, help="accept all findings of now in this file")
    parser.add_argument("--watch", action="store_true", help="look again and again while the run is going on")
    add_json(parser, "print JSON instead of text; with --watch a line each time that something changed")
    add_dir(parser)


def run(args: argparse.Namespace) -> int:
    from fedvitals.diagnose.registry import chosen
    from fedvitals.show.baseline import read_baseline

    rules = chosen(_words(args.select), _words(args.ignore))
    known = read_baseline(args.baseline) if args.baseline else frozenset()
    with opened(args) as reader:
        looking = _Looking(args, reader, rules, known)
        if args.write_baseline:
            return looking.accept(args.write_baseline)
        return looking.watch() if args.watch else looking.once()


class _Looking:
    """One command line at work on one run."""

    def __init__(
        self, args: argparse.Namespace, reader: RunReader, rules: Sequence[Rule], known: frozenset[Fingerprint]
    ) -> None:
        from fedvitals.diagnose.charting import Charting
        from fedvitals.diagnose.words import naming

        run_id = reader.run().id
        self._args, self._reader, self._rules, self._known = args, reader, rules, known
        self._charting = Charting(reader)
        self._spoken: Spoken = naming(run_id) if args.json else spoken(run_id, settings_of(args))

    def look(self) -> Diagnosis:
        from fedvitals.diagnose.diagnosis import examine

        return examine(self._charting.chart(), self._rules)

    def accept(self, path: Path) -> int:
        from fedvitals.show.baseline import write_baseline
        from fedvitals.show.cli.terminal import say
        from fedvitals.show.words import plural, safe

        findings = self.look().findings
        write_baseline(path, findings)
        say(f"{plural(len(findings), 'finding')} accepted; from now on: --baseline {safe(path)}")
        return 0

    def once(self) -> int:
        diagnosis = self.look()
        findings = self._new(diagnosis)
        self._show(diagnosis, findings)
        return self._exit_code(findings)

    def watch(self) -> int:
        """Until the run ends; Ctrl-C ends it before, as the door of the command line says."""
        import time

        from fedvitals.show import watching

        told = self._tell_json if self._args.json else self._tell
        diagnosis = None
        seen = watching.watch(self._look_new, self._ended, sleep=time.sleep, cpu_s=time.process_time)
        for changes in seen:
            diagnosis = changes.diagnosis
            told(changes)
        assert diagnosis is not None
        return self._exit_code(diagnosis.findings)

    def _look_new(self) -> Diagnosis:
        from dataclasses import replace

        diagnosis = self.look()
        return replace(diagnosis, findings=tuple(self._new(diagnosis)))

    def _ended(self) -> bool:
        from fedvitals.vocabulary import Status

        return self._reader.run().status is not Status.RUNNING

    def _new(self, diagnosis: Diagnosis) -> list[Finding]:
        from fedvitals.show.baseline import unknown

        return unknown(diagnosis.findings, self._known)

    def _show(self, diagnosis: Diagnosis, findings: Sequence[Finding]) -> None:
        from fedvitals.diagnose.words import WIDTH
        from fedvitals.show.cli.terminal import print_json, print_texts, text_width
        from fedvitals.show.findings import diagnosis_document, styled_diagnosis

        accepted = len(diagnosis.findings) - len(findings)
        if self._args.json:
            document = diagnosis_document(diagnosis, findings, self._spoken)
            print_json(document | ({"accepted": accepted} if self._args.baseline else {}))
        else:
            width = text_width(WIDTH)
            print_texts(styled_diagnosis(diagnosis, findings, self._spoken, accepted=accepted, width=width))

    def _tell(self, changes: Changes) -> None:
        from fedvitals.diagnose.words import WIDTH
        from fedvitals.show.cli.terminal import print_texts, text_width
        from fedvitals.show.findings import styled_changes

        print_texts(styled_changes(changes, self._spoken, width=text_width(WIDTH)))

    def _tell_json(self, changes: Changes) -> None:
        from fedvitals.show.cli.terminal import print_json
        from fedvitals.show.findings import diagnosis_document

        if changes.first or changes:
            document = diagnosis_document(changes.diagnosis, changes.diagnosis.findings, self._spoken)
            print_json(document, one_line=True)

    def _exit_code(self, findings: Sequence[Finding]) -> int:
        from fedvitals.show.findings import at_least
        from fedvitals.vocabulary import Severity

        if self._args.fail_on == NEVER:
            return 0
        return EXIT_FAILED if at_least(findings, Severity(self._args.fail_on)) else 0


def _words(values: Sequence[str]) -> list[str]:
    return [word for value in values for word in value.split(",") if word.strip()]
