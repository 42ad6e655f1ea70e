"""Findings that are known and accepted: a JSON file of fingerprints, so that only what is new is reported.

A fingerprint is what a finding is about (code, clients, layers) without its rounds and numbers: the same trouble in a
longer or repeated run is the same finding. One whose symptoms are not all known is new.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from fedvitals.errors import FedvitalsError
from fedvitals.show.whole_file import whole_file
from fedvitals.vocabulary import Finding

SCHEMA_VERSION = 1
MOST_BYTES = 16 << 20


class Fingerprint(NamedTuple):
    """What a finding is about."""

    code: str
    clients: tuple[str, ...]
    layers: tuple[str, ...]


def fingerprint(finding: Finding) -> Fingerprint:
    return Fingerprint(finding.code, tuple(sorted(finding.clients)), tuple(sorted(finding.layers)))


def fingerprints(finding: Finding) -> set[Fingerprint]:
    """Of the finding and of all that follows from it."""
    return {fingerprint(finding)}.union(*map(fingerprints, finding.symptoms))


def unknown(findings: Iterable[Finding], known: frozenset[Fingerprint]) -> list[Finding]:
    """Those that the baseline does not have."""
    return [one for one in findings if not fingerprints(one) <= known]


def read_baseline(path: Path) -> frozenset[Fingerprint]:
    """FedvitalsError, in one line, when the file is missing or is no baseline."""
    try:
        with path.open("rb") as file:
            data = file.read(MOST_BYTES + 1)
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from error
    if len(data) > MOST_BYTES:
        raise _refused(path, f"it has more than {MOST_BYTES >> 20} MiB")
    try:
        document = json.loads(data)
        if document["schema_version"] != SCHEMA_VERSION:
            raise _refused(path, f"its schema_version is {document['schema_version']!r}, not {SCHEMA_VERSION}")
        return frozenset(_entry(one) for one in document["findings"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        raise _refused(path, "it is no JSON that --write-baseline wrote") from error


def write_baseline(path: Path, findings: Sequence[Finding]) -> None:
    """The whole file or none of it."""
    entries = sorted(set[Fingerprint]().union(*map(fingerprints, findings)))
    document = {"schema_version": SCHEMA_VERSION, "findings": [entry._asdict() for entry in entries]}
    with whole_file(path, "--write-baseline") as file:
        file.write(json.dumps(document, indent=2) + "\n")


def _entry(one: Any) -> Fingerprint:
    code, clients, layers = one["code"], one["clients"], one["layers"]
    words = (code, *clients, *layers)
    if not isinstance(clients, list) or not isinstance(layers, list) or not all(isinstance(w, str) for w in words):
        raise TypeError("an entry is a code and two lists of names")
    return Fingerprint(code, tuple(sorted(clients)), tuple(sorted(layers)))


def _refused(path: Path, reason: str) -> FedvitalsError:
    return FedvitalsError(f"--baseline {path}: {reason}; --write-baseline makes one")
