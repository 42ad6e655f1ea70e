"""When a training has got what it was for, and ends before its last round."""

from __future__ import annotations

IN_A_ROW = 3  # evaluations: one alone may be luck


class Target:
    """An accuracy that is to be reached and held; 0 never is."""

    def __init__(self, accuracy: float) -> None:
        self._accuracy = accuracy
        self._held = 0

    def held(self, accuracy: float) -> bool:
        """Whether it is, after one more evaluation."""
        self._held = self._held + 1 if accuracy >= self._accuracy else 0
        return self._accuracy > 0.0 and self._held >= IN_A_ROW
