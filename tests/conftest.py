"""What every test gets: a store of its own, and the check that it leaves nothing behind."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from fedvitals.testing import Footprint, assert_nothing_left

# Before torch is loaded anywhere: small tensors on several threads of a busy machine are many times slower than on one.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# A shell that starts tests in the background has them, and whatever they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
settings.register_profile("fedvitals", deadline=None)  # a busy machine is no failure
settings.load_profile("fedvitals")


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs go to the test's own folder, and no setting of the developer's comes in."""
    for name in list(os.environ):
        if name.startswith("FEDVITALS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("FEDVITALS_DIR", str(tmp_path / "runs"))


@pytest.fixture(autouse=True)
def nothing_left(tmp_path: Path) -> Iterator[None]:
    """No thread, torch hook, log handler or open file of ours outlives a test."""
    before = Footprint.now(tmp_path)
    yield
    assert_nothing_left(before, tmp_path)
