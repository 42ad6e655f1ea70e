"""Where a client's time goes: phases, loaders, steps and epochs, on a clock that the test moves."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from watching import breaks, only, read, round_of, spans_of

from fedvitals.testing import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def slowly(clock: FakeClock, items: int, seconds: float) -> Iterator[int]:
    for item in range(items):
        clock.advance(seconds)
        yield item


def test_phases_are_timed_and_their_bytes_counted(clock: FakeClock) -> None:
    """Each under its name, repeated ones added up, in the participation and as spans."""
    with round_of(now_ns=clock.now_ns) as rnd:
        clock.advance(1.0)
        with rnd.client(7, samples=12) as c:
            for _ in range(2):
                with c.phase("download", bytes=100):
                    clock.advance(0.5)
            with c.phase("upload", bytes=30) as phase:
                clock.advance(0.25)
                phase.note(host="h")
            clock.advance(2.0)
    one = only()
    assert one.phases_s == {"download": 1.0, "upload": 0.25}
    assert (one.wire_bytes_down, one.wire_bytes_up, one.samples) == (200, 30, 12)
    assert (one.start_ns, one.duration_s) == (1_000_000_000, 3.25)
    with read() as reader:
        spans = reader.spans(round=0)
    assert [(s.name, s.client, s.attempt, s.attributes) for s in spans] == [
        ("download", "7", 0, '{"bytes": 100}'),
        ("download", "7", 0, '{"bytes": 100}'),
        ("upload", "7", 0, '{"bytes": 30, "host": "h"}'),
    ]


def test_an_unknown_phase_is_kept_under_other_with_its_name(clock: FakeClock) -> None:
    """A client's and a server's; a phase that only servers have is `other` in a client's sums."""
    with round_of(now_ns=clock.now_ns) as rnd:
        with rnd.client(1) as c:
            with c.phase("tokenise"):
                clock.advance(1.0)
            with c.phase("aggregate"):
                clock.advance(2.0)
        with rnd.phase("publish", to="web"), rnd.phase("aggregate"):
            clock.advance(1.0)
    assert only().phases_s == {"other": 3.0}
    with read() as reader:
        spans = {(s.name, s.client, s.attributes) for s in spans_of(reader)}
    assert spans == {
        ("other", "1", '{"name": "tokenise"}'),
        ("aggregate", "1", None),
        ("other", None, '{"to": "web", "name": "publish"}'),
        ("aggregate", None, None),
    }


def test_a_phase_inside_another_counts_once(clock: FakeClock) -> None:
    """So the phases of a participation add up to no more than it took."""
    with round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c, c.phase("train"):
        clock.advance(1.0)
        with c.phase("load"):
            clock.advance(2.0)
            with c.phase("decode"):
                clock.advance(4.0)
        clock.advance(8.0)
    one = only()
    assert one.phases_s == {"train": 9.0, "load": 2.0, "decode": 4.0}
    assert sum(one.phases_s.values()) == one.duration_s


def test_batches_tell_loading_from_training(clock: FakeClock) -> None:
    """The loader's time is `load`, the loop's body `train`, but for phases the body names itself."""
    with round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c:
        for epoch in range(2):
            for _ in c.batches(slowly(clock, 3, 0.5)):
                clock.advance(1.0)
                with c.phase("evaluate"):
                    clock.advance(0.25)
            clock.advance(0.125 * epoch)
    one = only()
    assert one.phases_s == {"load": 3.0, "train": 6.0, "evaluate": 1.5}
    assert (one.steps, one.epochs) == (6, 2)


def test_a_loop_inside_another_counts_once(clock: FakeClock) -> None:
    """Batches in parts: the inner loop's time is not the outer one's as well, and none of either's is lost."""
    with round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c:
        for _ in c.batches(slowly(clock, 2, 0.5)):
            clock.advance(1.0)
            for _ in c.batches(slowly(clock, 3, 0.25)):
                clock.advance(2.0)
            clock.advance(4.0)
    one = only()
    assert one.phases_s == {"load": 1.0 + 1.5, "train": 10.0 + 12.0}
    assert sum(one.phases_s.values()) == one.duration_s


def test_loops_side_by_side_are_one(clock: FakeClock) -> None:
    """Two loaders zipped, also where the first is left or ends one early: both are waited for, steps are taken once."""
    for many, fewer, left in ((3, 3, False), (3, 2, False), (2, 3, False), (3, 3, True)):
        with round_of(now_ns=clock.now_ns, name=f"zip-{many}-{fewer}-{left}") as rnd, rnd.client(1) as c:
            both = zip(c.batches(slowly(clock, many, 0.5)), c.batches(slowly(clock, fewer, 0.25)), strict=False)
            for step, _ in enumerate(both):
                clock.advance(1.0)
                with c.phase("evaluate"):
                    clock.advance(2.0)
                if left and step == 1:
                    break
            del both
        one = only(f"zip-{many}-{fewer}-{left}")
        taken = 2 if left else min(many, fewer)
        waited = taken * 0.75 + 0.5 * (many > fewer)
        assert one.phases_s == {"load": waited, "train": taken * 1.0, "evaluate": taken * 2.0}
        assert sum(one.phases_s.values()) == one.duration_s
        assert (one.steps, one.epochs) == (many if many > fewer else taken, 1)


def test_a_loader_that_goes_on_through_several_passes_of_another_is_beside_them(clock: FakeClock) -> None:
    """As one of rows without labels does: its waiting counts, in every pass, and its batches are no steps."""
    with round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c:
        unlabelled = c.batches(slowly(clock, 100, 0.25))
        for _ in range(2):
            for _ in c.batches(slowly(clock, 3, 0.5)):
                next(unlabelled)
                clock.advance(1.0)
    one = only()
    assert one.phases_s == {"load": 6 * 0.75, "train": 6.0}
    assert sum(one.phases_s.values()) == one.duration_s
    assert (one.steps, one.epochs) == (6, 2)


def test_a_phase_inside_the_loader_is_not_loading(clock: FakeClock) -> None:
    """A loader that names what it does has that told apart from waiting for it, and from training."""
    with round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c:

        def decoded() -> Iterator[int]:
            for item in slowly(clock, 2, 0.5):
                with c.phase("decode"):
                    clock.advance(0.25)
                yield item

        for _ in c.batches(decoded()):
            clock.advance(1.0)
    assert only().phases_s == {"decode": 0.5, "load": 1.0, "train": 2.0}


def test_a_loader_with_nothing_trains_nothing(clock: FakeClock) -> None:
    """Waiting for it counts all the same."""
    with round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c:
        assert list(c.batches(slowly(clock, 0, 1.0))) == []
    assert only().phases_s == {"load": 0.0}


@pytest.mark.parametrize("style", ["with", "call before", "call after"])
def test_epochs_that_are_marked_are_the_ones_that_count(style: str) -> None:
    """As `with c.epoch():` or as a plain call, before the pass or after it."""
    with round_of() as rnd, rnd.client(1) as c:
        for _ in range(3):
            if style == "with":
                with c.epoch():
                    seen = [*c.batches([1, 2]), *c.batches([3])]
            else:
                if style == "call before":
                    c.epoch()
                seen = [*c.batches([1, 2]), *c.batches([3])]
                if style == "call after":
                    c.epoch()
            assert seen == [1, 2, 3]
    one = only()
    assert (one.epochs, one.steps) == (3, 9)


def test_a_loop_that_is_left_early_has_trained_until_then(clock: FakeClock) -> None:
    """`break` ends the step and the loop; the time after it is nobody's."""
    with round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c:
        for item in c.batches(slowly(clock, 10, 0.5)):
            clock.advance(1.0)
            if item == 1:
                break
        gc.collect()
        clock.advance(5.0)
    one = only()
    assert one.phases_s == {"load": 1.0, "train": 2.0}
    assert one.steps == 2


def test_the_interrupted_step_of_a_failed_loop_counts(clock: FakeClock) -> None:
    """An exception keeps the loop suspended in its body; the step's time is not lost."""
    with breaks(KeyError), round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c:
        for item in c.batches(range(5)):
            clock.advance(1.0)
            if item == 2:
                raise KeyError(item)
    one = only()
    assert one.phases_s == {"load": 0.0, "train": 3.0}
    assert (one.steps, one.outcome) == (3, "failed")


def test_a_session_that_waits_before_it_is_entered_does_not_count_the_wait(clock: FakeClock) -> None:
    """Sessions may be made first and entered when their turn comes."""
    with round_of(now_ns=clock.now_ns) as rnd:
        sessions = [rnd.client(i) for i in range(2)]
        for session in sessions:
            clock.advance(10.0)
            with session:
                clock.advance(1.0)
    with read() as reader:
        assert [one.duration_s for one in reader.participations()] == [1.0, 1.0]
        assert [one.start_ns for one in reader.participations()] == [10_000_000_000, 21_000_000_000]


def test_a_decorated_phase_counts_every_call(clock: FakeClock) -> None:
    """`@c.phase("encode")` on a function adds to the participation as `with` does."""
    with round_of(now_ns=clock.now_ns) as rnd, rnd.client(1) as c:

        @c.phase("encode")
        def encode() -> None:
            clock.advance(1.0)

        encode()
        encode()
    assert only().phases_s == {"encode": 2.0}


def test_steps_are_the_optimizers_then_what_was_told_then_batches() -> None:
    """Told steps go before counted batches: several batches may make one step."""
    with round_of() as rnd:
        with rnd.client("told") as c:
            for item in c.batches(range(6)):
                if item % 2:
                    c.step(0.5)
        with rnd.client("counted") as c:
            assert len(list(c.batches(range(6)))) == 6
        with rnd.client("nothing"):
            pass
    with read() as reader:
        found = {one.client: one.steps for one in reader.participations()}
    assert found == {"told": 3, "counted": 6, "nothing": None}
