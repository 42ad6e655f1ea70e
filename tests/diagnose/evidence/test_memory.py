"""What is kept of clients from round to round, and what shows in it."""

from __future__ import annotations

import numpy as np

from fedvitals.diagnose.evidence.measures import NAMES, OWN, Directions, Parts, unit
from fedvitals.diagnose.evidence.memory import LATELY, LEAST_BEFORE, Levels, Memory

CLIENTS = np.arange(6)
NOWHERE = Parts(None, None, None, (), ())


def _splits(series: np.ndarray) -> np.ndarray:
    """[participations, clients]: of the first measure, where all measures go as these series do."""
    levels = Levels(len(CLIENTS), len(NAMES))
    every = np.repeat(series[:, :, None], len(NAMES), axis=2)
    return np.array([levels.split(CLIENTS, np.full(6, number), every[number])[:, 0] for number in range(len(series))])


def test_a_change_of_level_stands_out_and_grows_with_time() -> None:
    """Of one that rises by twice its noise; the others have no change to speak of. It takes three before it."""
    series = np.random.default_rng(0).normal(size=(20, 6))
    series[8:, 2] += 2.0
    found = _splits(series)
    assert np.isnan(found[:LEAST_BEFORE]).all()
    assert found[15, 2] > 4
    assert found[15, 2] > found[8, 2]
    assert np.abs(np.delete(found, 2, axis=1)[LEAST_BEFORE:]).max() < 4


def test_who_was_always_so_has_no_change() -> None:
    """However far from the others; nor has a series of the same numbers, or of missing ones."""
    series = np.random.default_rng(1).normal(size=(16, 6))
    series[:, 4] += 40.0
    series[:, 5] = np.nan
    found = _splits(series)[LEAST_BEFORE:]
    assert np.abs(found[:, 4]).max() < 4
    assert np.abs(found[:, 5]).max() == 0


def test_a_quiet_change_of_direction_shows_in_the_last_five_together() -> None:
    """Noise hides it in any single update; whoever goes on as before is like its own past."""
    random = np.random.default_rng(2)
    memory, kept = Memory(6, _directions(random, np.zeros((6, 40)))), []
    taste = 0.3 * unit(random.normal(size=(6, 40)))
    other = 0.3 * unit(random.normal(size=40))
    for number in range(24):
        mine = taste.copy()
        if number >= 24 - LATELY:
            mine[1] = other
        now = _directions(random, mine)
        kept.append(memory.own(CLIENTS, now, NOWHERE))
        memory.remember(CLIENTS, now, np.zeros((6, len(NAMES))), np.zeros((6, len(NAMES))))
    end = kept[-1][:, OWN.index("late_rows")]
    assert end[1] < 0.5 * np.delete(end, 1).min()
    news = kept[-1][:, OWN.index("late_news")]
    assert news[1] > 1.5 * np.delete(news, 1).max()
    assert np.isnan(kept[LATELY - 1][:, OWN.index("late_rows")]).all()
    pushed = kept[-1][:, OWN.index("late_pushed")]
    assert pushed.argmax() == 1
    assert np.isnan(kept[0]).all()


def _directions(random: np.random.Generator, taste: np.ndarray) -> Directions:
    noisy = unit(taste + 0.05 * random.normal(size=taste.shape))
    return Directions(noisy.astype(np.float32), noisy, np.repeat(noisy, 2, axis=1), noisy)


def test_who_begins_to_push_other_units_shows_however_unevenly_it_pushes() -> None:
    """The last three and the last five together, beside all before, in what is usual in the cohort: whoever was always
    so has a steady push, and no shift."""
    random = np.random.default_rng(3)
    memory, kept = Memory(6, _directions(random, np.zeros((6, 10)))), []
    always, late = np.eye(10)[2], np.eye(10)[7]
    for number in range(16):
        far = random.normal(scale=0.3, size=(6, 10)) * (100.0 if number == 4 else 1.0)  # a round in which all push far
        far[3] += 2 * always * (100.0 if number == 4 else 1.0)
        far[1] += 2 * late * (number >= 16 - LATELY)
        now = _directions(random, far)._replace(pushes=far)
        kept.append(memory.own(CLIENTS, now, NOWHERE))
        memory.remember(CLIENTS, now, np.zeros((6, len(NAMES))), np.zeros((6, len(NAMES))))
    steady, shift, soon = (kept[-1][:, OWN.index(name)] for name in ("steady_push", "push_shift", "push_shift_soon"))
    assert set(np.argsort(-steady)[:2].tolist()) == {1, 3}
    assert shift.argmax() == soon.argmax() == 1
    assert shift[1] > np.delete(shift, 1).max() + 0.5
    assert np.isnan(kept[0][:, OWN.index("push_shift_soon")]).all()


def test_a_cohort_of_everybody_is_remembered_as_one_among_others() -> None:
    """Where all clients come in order nothing is copied; a memory that has room for one more must, and says the same.
    So does one whose first rounds only half of them were in."""
    random = np.random.default_rng(5)
    shape = _directions(random, np.zeros((6, 40)))
    whole, wider = Memory(6, shape), Memory(7, shape)
    assert isinstance(whole.seats(CLIENTS), slice)
    assert not isinstance(wider.seats(CLIENTS), slice)
    for number in range(20):
        clients = CLIENTS[::2] if number < 3 else CLIENTS
        now = _directions(random, random.normal(size=(len(clients), 40)))
        numbers = random.normal(size=(len(clients), len(NAMES)))
        one, other = (_remembered(memory, clients, now, numbers) for memory in (whole, wider))
        np.testing.assert_array_equal(one, other)


def _remembered(memory: Memory, clients: np.ndarray, now: Directions, numbers: np.ndarray) -> np.ndarray:
    seats = memory.seats(clients)
    split = memory.levels.split(seats, memory.count[seats], numbers)
    own = memory.own(seats, now, NOWHERE)
    memory.remember(seats, now, numbers, numbers)
    return np.concatenate([split, own, memory.raw[seats].reshape(len(clients), -1), memory.sums[seats]], axis=1)
