"""Which faults are found, in whom, how soon, and how often a clean run is accused; beside other detectors."""

from __future__ import annotations

from fedvitals.bench.faults.measuring import run as run
