"""`fedvitals.start` and the run it gives: refusals, switches, endings, versions and spans."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import fedvitals
from fedvitals.capture.nothing import NoRun
from fedvitals.errors import SettingsError, StoreError
from fedvitals.run import Run
from fedvitals.settings import Settings, resolve
from fedvitals.store import SQLiteStore, open_store
from fedvitals.store.protocol import RunReader
from fedvitals.testing import FakeClock
from fedvitals.vocabulary import Level, Span, Status


def started(name: str = "t", **values: Any) -> Run:
    run = fedvitals.start(name, **values)
    assert isinstance(run, Run)
    return run


def reader(name: str = "last") -> closing[RunReader]:
    return closing(open_store(resolve()).open(name))


def _told(one: RunReader) -> list[Span]:
    """Spans but our own."""
    return [span for span in one.spans() if not span.name.startswith("fl.")]


def status(name: str = "last") -> Status:
    with reader(name) as one:
        return one.run().status


def test_recording_owns_up_to_its_time() -> None:
    """From the start, around each round and at the end: a profile has to explain every instant."""
    with started() as run, run.round(0):
        pass
    with reader() as one:
        spans = [span for span in one.spans() if span.name == "fl.recording"]
        (only,) = one.rounds()
        ended = one.run().ended_ns or 0
    assert [span.start_ns for span in spans][:2] == [0, only.start_ns]
    edges = [only.end_ns, spans[2].end_ns, spans[3].start_ns, spans[3].end_ns, ended]
    assert edges == sorted(edge for edge in edges if edge is not None)


@pytest.mark.parametrize("name", ["a/b", "../up", "..", "a..b", ".hidden", "-x", "", "a b", "x" * 101, 7, None])
def test_a_name_that_could_leave_the_folder_is_refused(name: Any, tmp_path: Path) -> None:
    """With a clear error, before anything is made."""
    with pytest.raises(StoreError, match="cannot be the name of a run"):
        fedvitals.start(name)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(("setting", "value"), [("bugdet", 0.1), ("budget", "much"), ("steps", "some"), ("dir", 3)])
def test_an_unknown_or_impossible_setting_is_refused(setting: str, value: Any) -> None:
    """The error names the setting."""
    with pytest.raises(SettingsError, match=setting):
        fedvitals.start("t", **{setting: value})


def test_settings_and_overrides_go_together(tmp_path: Path) -> None:
    """An argument changes the settings that were handed over, it does not throw them away."""
    with started(settings=Settings(dir=str(tmp_path / "there"), level="summary"), budget=0.5) as run:
        assert run.recorder.settings == Settings(dir=str(tmp_path / "there"), level="summary", budget=0.5)
    assert [one.name for one in (tmp_path / "there").iterdir()] == [run.id]


def test_a_run_is_kept_with_its_name_level_config_and_surroundings() -> None:
    """What `start` was told and where it ran."""
    with started("mnist-fedavg", config={"lr": 0.1}, level="summary", environment_extra={"data": "abc"}):
        pass
    with reader() as one:
        run = one.run()
    assert (run.name, run.level, run.config, run.status) == (
        "mnist-fedavg",
        Level.SUMMARY,
        {"lr": 0.1},
        Status.FINISHED,
    )
    assert run.environment["data"] == "abc"
    assert run.environment["versions"]["torch"]


@dataclasses.dataclass
class _Config:
    lr: float = 0.1


@pytest.mark.parametrize(
    ("config", "kept"),
    [
        (argparse.Namespace(lr=0.1, path=Path("x")), {"lr": 0.1, "path": "x"}),
        (_Config(), {"lr": 0.1}),
        ([1, 2], {"config": [1, 2]}),
        (None, {}),
        ({"f": len, 1: {2}}, {"f": str(len), "1": [2]}),
    ],
)
def test_any_kind_of_configuration_is_taken(config: Any, kept: dict[str, Any]) -> None:
    """Argparse's, a dataclass, a list, or values that JSON does not know."""
    with started(config=config):
        pass
    with reader() as one:
        assert one.run().config == kept


def test_the_configuration_is_kept_as_it_was_at_the_start() -> None:
    """What the training changes in it later is not what the run began with."""
    config = {"layers": [1, 2]}
    with started(config=config):
        config["layers"].append(3)
    with reader() as one:
        assert one.run().config == {"layers": [1, 2]}


def test_a_training_that_goes_to_another_folder_is_recorded_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The folder of runs is that of the start, and so is what the run is read back from."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "checkpoints").mkdir()
    with fedvitals.start("t", dir="mine") as run:
        monkeypatch.chdir(tmp_path / "checkpoints")
        with run.round(0) as rnd, rnd.client(7) as c:
            c.step(1.0)
        assert run.diagnose().run.name == "t"
    with closing(SQLiteStore(tmp_path / "mine").open("last")) as reader:
        assert [one.client for one in reader.participations()] == ["7"]
        assert reader.run().status is Status.FINISHED
    assert not any((tmp_path / "checkpoints").iterdir())


@pytest.mark.parametrize("blocked", ["parent is a file", "is a file"])
def test_a_place_that_cannot_be_written_gives_one_warning(
    blocked: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And a run that is not recorded: the training goes on."""
    place = tmp_path / "file"
    place.write_text("no folder")
    with fedvitals.start("t", dir=str(place / "runs" if blocked == "parent is a file" else place)) as run:
        assert isinstance(run, NoRun)
        with run.round(0) as rnd, rnd.client(1) as c:
            c.submit({})
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "this run is not recorded" in caplog.text
    assert place.read_text() == "no folder"


def test_an_exception_ends_the_run_as_failed_and_comes_out_unchanged() -> None:
    """The same object, and the run says what it was."""
    mine = KeyError("mine")
    with pytest.raises(KeyError) as caught, started():
        raise mine
    assert caught.value is mine
    with reader() as one:
        run = one.run()
    assert run.status == Status.FAILED
    assert run.health["error"] == "KeyError: 'mine'"


def test_an_exception_that_cannot_be_printed_still_comes_out_unchanged() -> None:
    """Its words are lost, the run is not."""

    class MuteError(RuntimeError):
        def __str__(self) -> str:
            raise ValueError("no words")

    mute = MuteError()
    with pytest.raises(MuteError) as caught, started() as run, run.round(0), run.span("s"):
        raise mute
    assert caught.value is mute
    with reader() as one:
        assert one.run().status == Status.FAILED
        assert [one.error for one in one.rounds()] == ["MuteError: <its text could not be had: ValueError>"]
        assert len(_told(one)) == 1


@pytest.mark.parametrize(("code", "expected"), [(None, "finished"), (0, "finished"), (1, "failed"), ("no", "failed")])
def test_leaving_the_program_on_purpose_is_no_failure(code: Any, expected: str) -> None:
    """`sys.exit()` ends a run as finished, `sys.exit(1)` as failed."""
    with pytest.raises(SystemExit), started():
        sys.exit(code)
    assert status() == expected


def test_closing_twice_changes_nothing() -> None:
    """The first end counts."""
    run = started()
    run.close()
    run.close(ValueError("late"))
    assert status() == Status.FINISHED


def test_calls_after_the_close_do_nothing(caplog: pytest.LogCaptureFixture) -> None:
    """A loop that goes on after its run was closed is not stopped, and nothing is added."""
    run = started()
    run.close()
    with run.round(0, model={}) as rnd, rnd.client(1) as c:
        c.submit({})
    with reader() as one:
        assert one.rounds() == []
        assert one.participations() == []
    assert caplog.records == []


def test_two_runs_at_once_are_two_runs() -> None:
    """Each has its own records, and its own logs where it is known whose they are."""
    logger = logging.getLogger("mine")
    with started("one") as first, started("two") as second:
        with first.round(1):
            logger.warning("of the first")
        with second.round(2), second.round(3):
            logger.warning("of the second")
    with reader("one") as one, reader("two") as two:
        assert [r.number for r in one.rounds()] == [1]
        assert [r.number for r in two.rounds()] == [2, 3]
        assert [e.message for e in one.logs()] == ["of the first"]
        assert [(e.message, e.round) for e in two.logs()] == [("of the second", 3)]


def test_spans_time_blocks_and_calls_whatever_becomes_of_them() -> None:
    """As a context manager and as a decorator, with the error when there is one."""
    clock = FakeClock()
    with started(now_ns=clock.now_ns) as run:
        with run.span("load data", rows=10) as span:
            clock.advance(2.0)
            span.note(files=3)

        @run.span("called")
        def twice(value: int) -> int:
            """Doubles."""
            clock.advance(0.5)
            if value < 0:
                raise ValueError("negative")
            return 2 * value if value == 0 else twice(value - 1) + 2

        assert twice(1) == 2
        with pytest.raises(ValueError, match="negative"):
            twice(-1)
        assert (twice.__name__, twice.__doc__) == ("twice", "Doubles.")
    with reader() as one:
        spans = _told(one)
    assert [(s.name, (s.end_ns or 0) - s.start_ns, s.error) for s in spans] == [
        ("load data", 2_000_000_000, None),
        ("called", 1_000_000_000, None),
        ("called", 500_000_000, None),
        ("called", 500_000_000, "ValueError: negative"),
    ]
    assert spans[0].attributes == '{"rows": 10, "files": 3}'
    assert len({s.id for s in spans}) == 4


def test_a_span_around_a_coroutine_lasts_until_it_is_done() -> None:
    """Not only until it is made."""
    clock = FakeClock()
    with started(now_ns=clock.now_ns) as run:

        @run.span("awaited")
        async def wait() -> str:
            clock.advance(3.0)
            return "done"

        assert asyncio.run(wait()) == "done"
    with reader() as one:
        (span,) = _told(one)
    assert (span.end_ns or 0) - span.start_ns == 3_000_000_000


def test_instants_count_from_the_anchor_on_the_wall() -> None:
    """`started_unix_ns` is the wall's time at the run's instant 0, however long the store took to be made."""
    clock = FakeClock(5)
    with started(now_ns=clock.now_ns) as run, run.round(0):
        assert run.origin_ns == 5
    with reader() as one:
        assert one.rounds()[0].start_ns == 0
