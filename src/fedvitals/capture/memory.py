"""Where a client that is apart from its server keeps its records until they go into a message."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from fedvitals.vocabulary import Blob, Failure, LogEntry, Participation, Record, Span, StepBlock, UpdateBlock

MOST = {Span: 500, Failure: 20, LogEntry: 200, StepBlock: 1_000}
LATEST = (Participation, UpdateBlock)  # a later one replaces the earlier


class MemorySink:
    """Keeps the records that a message may carry, as many as it may; counts the rest."""

    def __init__(self) -> None:
        self.dropped: dict[str, int] = Counter()
        self.kept: dict[type, list[Any]] = {kind: [] for kind in (*MOST, *LATEST)}

    @property
    def cpu_s(self) -> float:
        return 0.0

    def put(self, records: Sequence[Record], size_bytes: int) -> bool:
        for record in records:
            self._put(record)
        return True

    def _put(self, record: Record) -> None:
        kind = type(record)
        if kind in LATEST:
            self.kept[kind] = [record]
        elif kind in MOST:
            if len(self.kept[kind]) < MOST[kind]:
                self.kept[kind].append(record)
            else:
                self.dropped[kind.__name__] = self.dropped.get(kind.__name__, 0) + 1

    def nudge(self) -> None:
        """Nothing is written before the message is."""

    def put_blob(self, data: Callable[[], bytes], size_bytes: int, describe: Callable[[str], Blob]) -> bool:
        return False

    def close(self, timeout_s: float) -> bool:
        return True
