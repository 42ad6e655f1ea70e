"""A run that is being recorded, examined from inside its own training: by `run.diagnose()` and `rnd.verdicts()`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

from fedvitals.diagnose.chart import Chart
from fedvitals.diagnose.charting import Charting
from fedvitals.diagnose.diagnosis import Diagnosis, examine
from fedvitals.diagnose.registry import RULES, chosen
from fedvitals.diagnose.rule import Rule
from fedvitals.store.protocol import RunReader
from fedvitals.vocabulary import Finding, Severity

# Whose rows are spoilt sends updates to leave out; a slow client, or one that the model serves badly, a good one.
ABOUT_UPDATES = ("FL4", "FL506", "FL507", "FL6")


class Verdicts(Mapping[object, tuple[Finding, ...]]):
    """Clients of a round whose updates are known to be bad, with what was found. Clients are asked for by the id that
    the training uses, a number or a text: `cid in verdicts`."""

    def __init__(self, found: Mapping[str, tuple[Finding, ...]] | None = None) -> None:
        self._found = dict(found or {})

    def __getitem__(self, client: object) -> tuple[Finding, ...]:
        return self._found[str(client)]

    def __contains__(self, client: object) -> bool:
        return str(client) in self._found

    def __iter__(self) -> Iterator[str]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def __repr__(self) -> str:
        words = ", ".join(f"{client!r}: {[one.code for one in found]}" for client, found in self._found.items())
        return f"{type(self).__name__}({{{words}}})"


class Checkups:
    """Examinations of one run. Its reader stays open between them, so that only what is new is read; any thread may
    ask, one at a time."""

    def __init__(self, open_run: Callable[[], RunReader]) -> None:
        self._open = open_run
        self._lock = threading.Lock()
        self._reader: RunReader | None = None
        self._charting: Charting | None = None

    def diagnosis(self, rules: Sequence[Rule] = RULES) -> Diagnosis:
        return examine(self._chart(), rules)

    def verdicts(self, number: int) -> Verdicts:
        """What is known against clients of this round, because of this round's updates."""
        chart = self._chart()
        diagnosis = examine(chart, chosen(ABOUT_UPDATES))
        table = chart.participations
        here = set(chart.names(table.client[table.round == number]))
        return Verdicts(_against(diagnosis.findings, number, here))

    def close(self) -> None:
        with self._lock:
            reader, self._reader, self._charting = self._reader, None, None
        if reader is not None:
            reader.close()

    def _chart(self) -> Chart:
        with self._lock:
            if self._charting is None:
                self._reader = self._open()
                self._charting = Charting(self._reader)
            return self._charting.chart()


def _against(findings: Iterable[Finding], number: int, clients: set[str]) -> dict[str, tuple[Finding, ...]]:
    found: dict[str, tuple[Finding, ...]] = {}
    for finding in _flat(findings):
        if finding.severity is not Severity.INFO and number in finding.rounds:
            for client in finding.clients:
                if client in clients:
                    found[client] = (*found.get(client, ()), finding)
    return found


def _flat(findings: Iterable[Finding]) -> Iterator[Finding]:
    for finding in findings:
        yield finding
        yield from _flat(finding.symptoms)
