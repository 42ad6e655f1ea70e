"""Worlds that nobody knows, before the whole doctor."""

from __future__ import annotations

from fedvitals.bench.scorer import wide
from fedvitals.bench.scorer.curriculum import WIDE_MIX
from fedvitals.bench.scorer.doctored import Seen, all_seen, seen, table

NUMBERS = range(WIDE_MIX, WIDE_MIX + 12, 2)


def test_a_world_is_looked_at_when_its_training_is_over() -> None:
    """The same one twice gives the same, on processes as well; of a sound one nobody is bad."""
    tried = [seen(wide.lesson(number)) for number in NUMBERS]
    assert list(all_seen(NUMBERS, workers=2)) == tried
    here = [one for one in tried if one is not None]
    assert len(here) >= 4
    assert all(one.accused <= one.either for one in here)
    assert all(not one.bad for one in here if one.clean)


def test_the_table_counts_sound_runs_and_clients_of_faults() -> None:
    """Suspects count beside the accused; a fault that struck nobody counts nowhere."""
    nobody: frozenset[str] = frozenset()
    one, two = frozenset({"1"}), frozenset({"1", "2"})
    runs = [
        Seen("clean", nobody, nobody, nobody),
        Seen("clean", nobody, nobody, one),
        Seen("clean", nobody, one, one),
        Seen("sign-flip", two, one, two),
        Seen("sign-flip", two, frozenset({"2", "3"}), two),
        Seen("backdoor", nobody, one, one),
        None,
    ]
    said = table(runs).splitlines()
    assert said[0] == "3 sound runs: somebody accused in 1, accused or suspect in 2; 1 lessons could not be trained"
    assert said[2].split() == ["sign-flip", "2", "4", "0.50", "1.00", "1"]
    assert len(said) == 3
