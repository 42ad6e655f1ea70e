"""Which keys were written before, in memory that does not grow with the run."""

from __future__ import annotations

from collections.abc import Sequence

_LOW_BITS = 0xFFFF_FFFF


class Seen:
    """Remembers keys whose lower half is handed out by counting, a counter for each upper half, and comes nearly in
    order.

    The highest number of a group and the holes below it say exactly what was seen. When holes pile up they are
    forgotten: then a number below the highest is said to have been seen, and whoever asks has to look.
    """

    def __init__(self, most_holes: int = 50_000, widest_gap: int = 1000) -> None:
        self._next: dict[int, int] = {}  # the number after the highest
        self._holes: set[int] = set()
        self._most_holes = most_holes
        self._widest_gap = widest_gap

    def add(self, keys: Sequence[int]) -> list[int]:
        """The places of the keys that may have been added before; all have been from now on."""
        places: list[int] = []
        following = self._next
        for place, key in enumerate(keys):  # the common case in line: this runs for every record
            group, number = key >> 32, key & _LOW_BITS
            if following.get(group, 0) == number:
                following[group] = number + 1
            elif self._add_other(group, number, key):
                places.append(place)
        return places

    def _add_other(self, group: int, number: int, key: int) -> bool:
        expected = self._next.get(group, 0)
        if number > expected:
            self._next[group] = number + 1
            if number - expected <= self._widest_gap and len(self._holes) < self._most_holes:
                self._holes.update(range(key - (number - expected), key))
            return False
        if key in self._holes:
            self._holes.discard(key)
            return False
        return True
