"""The test kit: its clock, its accelerator, its federation, and checks that do find leaks."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch

from fedvitals import testing
from fedvitals.capture.accelerator import DeviceSample
from fedvitals.testing import FakeAccelerator, FakeClock, Footprint, assert_nothing_left, toy_federation


def test_time_passes_when_told() -> None:
    """`advance` and `sleep` move the clock, exactly and at once; it never goes back."""
    clock = FakeClock(start_ns=5)
    clock.advance(1.5)
    clock.sleep(0.25)
    assert clock.now_ns() == 5 + 1_750_000_000
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)


def test_the_accelerator_plays_its_readings() -> None:
    """One after the other, then the last again; without any it has no device."""
    first, second = DeviceSample("cuda:0", 1, 2, 8, 0.5), DeviceSample("cuda:0", 3, 4, 8, 0.9)
    device = FakeAccelerator([first], [second])
    assert [device.samples() for _ in range(3)] == [[first], [second], [second]]
    assert FakeAccelerator().samples() == []


def test_a_thread_left_behind_is_found() -> None:
    """A thread of ours that still runs is named."""
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="fedvitals-lost", daemon=True)
    before = Footprint.now()
    thread.start()
    with pytest.raises(AssertionError, match="thread fedvitals-lost"):
        assert_nothing_left(before)
    stop.set()
    thread.join()
    assert_nothing_left(before)


def test_an_optimizer_hook_left_behind_is_found() -> None:
    """A global hook of torch that was not taken away is found, and its removal too."""
    from torch.optim.optimizer import register_optimizer_step_post_hook

    before = Footprint.now()
    handle = register_optimizer_step_post_hook(lambda *_: None)
    with pytest.raises(AssertionError, match="optimizer hook"):
        assert_nothing_left(before)
    handle.remove()
    assert_nothing_left(before)


def test_a_log_handler_left_behind_is_found() -> None:
    """The root logger must have the handlers it had."""
    before, handler = Footprint.now(), logging.NullHandler()
    logging.getLogger().addHandler(handler)
    with pytest.raises(AssertionError, match="root logger"):
        assert_nothing_left(before)
    logging.getLogger().removeHandler(handler)
    assert_nothing_left(before)


def test_an_open_file_is_found(tmp_path: Path) -> None:
    """A file below the folder that is still open is named; one elsewhere is nobody's business."""
    before = Footprint.now(tmp_path)
    with (tmp_path / "run.db").open("wb"):
        with pytest.raises(AssertionError, match=r"open file .*run\.db"):
            assert_nothing_left(before, tmp_path)
        assert_nothing_left(before, tmp_path / "elsewhere")
    assert_nothing_left(before, tmp_path)


def test_without_a_footprint_any_thread_of_ours_counts() -> None:
    """A user may call it with nothing at all, at the end of a test."""
    assert_nothing_left()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="fedvitals-lost", daemon=True)
    thread.start()
    with pytest.raises(AssertionError, match="fedvitals-lost"):
        assert_nothing_left()
    stop.set()
    thread.join()


def test_a_toy_federation_repeats_and_deals_every_row_once() -> None:
    """The same seed gives the same rows; no row belongs to two clients or to a client and the test."""
    one, same, other = toy_federation(), toy_federation(), toy_federation(seed=1)
    rows = torch.cat([*one.train_rows, one.test_rows])
    assert torch.equal(one.x, same.x)
    assert not torch.equal(one.x, other.x)
    assert sorted(rows.tolist()) == list(range(len(one.y)))
    assert one.clients == ("0", "1", "2", "3")


def test_the_kit_is_light() -> None:
    """Importing it loads neither torch nor pytest."""
    code = "import sys, fedvitals.testing; print(sorted({'torch', 'numpy', 'pytest'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_contracts_are_at_hand() -> None:
    """Whoever writes a store or a codec finds the contract here; other names are refused."""
    assert testing.CodecContract.__name__ == "CodecContract"
    assert testing.StoreContract.__name__ == "StoreContract"
    assert testing.RuleContract.__name__ == "RuleContract"
    with pytest.raises(AttributeError, match="no attribute 'Contract'"):
        testing.Contract  # type: ignore[attr-defined]  # noqa: B018  # the access is the test
