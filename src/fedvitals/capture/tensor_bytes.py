"""What a model's tensors take: parameters, gradients, buffers and the optimizer's state, counted from the tensors.

A tensor is a view of a storage; storages are what memory is taken for, so each is counted once, where it is first met:
tied weights once, a gradient that shares a bucket with others as that bucket. Counts are kept when they are new to the
run, not with every participation.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from fedvitals.capture.attributes import as_json

if TYPE_CHECKING:
    from fedvitals.capture.recorder import Recorder

SPAN = "fl.tensors"
MOST_COUNTS = 64  # different ones that are kept of a run
FIRST, EVERY_S = 8, 1.0  # participations whose tensors are counted: so many, then one in so many seconds
DEEPEST = 4  # levels of an optimizer's state


class TensorBytes(NamedTuple):
    """None where there was nothing to count from."""

    parameters: int
    gradients: int | None = None
    buffers: int | None = None
    optimizer: int | None = None


def count(model: Any, optimizers: Iterable[Any] = ()) -> TensorBytes:
    """Of a module; of anything else that holds a model all tensors, as nobody knows which of them are parameters."""
    seen: set[tuple[str, int]] = set()
    if not hasattr(model, "named_parameters"):
        return TensorBytes(_sum(_held(model), seen))
    parameters = list(model.parameters())
    states = [one.state for one in optimizers]
    return TensorBytes(
        parameters=_sum(parameters, seen),
        gradients=_sum((one.grad for one in parameters), seen),
        buffers=_sum(model.buffers(), seen),
        optimizer=_sum((tensor for state in states for tensor in _within(state)), seen) if states else None,
    )


def _held(model: Any) -> Iterable[Any]:
    """The tensors of a state dict, of a list of arrays, or of an engine's flat model."""
    if hasattr(model, "integers"):
        return [model.row, *model.integers.values()]
    tensors: Iterable[Any] = model.values() if isinstance(model, Mapping) else model
    return tensors


def _sum(tensors: Iterable[Any], seen: set[tuple[str, int]]) -> int:
    return sum(_new_bytes(part, seen) for tensor in tensors for part in _parts(tensor))


def _parts(tensor: Any) -> tuple[Any, ...]:
    """A sparse tensor has no storage of its own; its indices and values do."""
    if tensor is None:
        return ()
    return (tensor._indices(), tensor._values()) if getattr(tensor, "is_sparse", False) else (tensor,)


def _new_bytes(tensor: Any, seen: set[tuple[str, int]]) -> int:
    """What the tensor's storage takes, if it was not counted before."""
    try:
        storage = tensor.untyped_storage()
        key, size = (str(tensor.device), int(storage.data_ptr())), int(storage.nbytes())
    except (AttributeError, RuntimeError, NotImplementedError):  # an array, or a tensor that only pretends
        key, size = ("", id(tensor)), int(getattr(tensor, "nbytes", 0))
    if key in seen:
        return 0
    if key[1]:  # storages that hold nothing yet share the address 0
        seen.add(key)
    return size


def _within(state: Any, depth: int = 0) -> Iterator[Any]:
    """The tensors of an optimizer's state, however it is nested."""
    if hasattr(state, "untyped_storage"):
        yield state
    elif depth < DEEPEST:
        inner = state.values() if isinstance(state, Mapping) else state if isinstance(state, list | tuple) else ()
        for one in inner:
            yield from _within(one, depth + 1)


class TensorCounts:
    """Keeps those counts of a run that differ: a span of no duration, `fl.tensors`, where each was first seen."""

    def __init__(self, recorder: Recorder, *, wanted: bool = True) -> None:
        self._recorder = recorder
        self._wanted = wanted
        self._known: set[TensorBytes] = set()
        self._layouts: set[int] = set()
        self._lock = threading.Lock()
        self._counted = 0
        self._last_s = 0.0

    def due(self) -> bool:
        """Whether the next participation's tensors are to be counted: the first ones, then now and then."""
        now = time.monotonic()
        if not self._wanted or (self._counted >= FIRST and now - self._last_s < EVERY_S):
            return False
        self._counted += 1
        self._last_s = now
        return True

    def of_server(self, model: Any, layout: int) -> None:
        """The global model, once a layout. It is the run's, of no round: what has a round is a phase of it."""
        if self._wanted and layout not in self._layouts:
            self._layouts.add(layout)
            self.keep(count(model), round=None)

    def keep(
        self, found: TensorBytes, *, round: int | None, client: str | None = None, attempt: int | None = None
    ) -> None:
        with self._lock:
            if found in self._known or len(self._known) >= MOST_COUNTS:
                return
            self._known.add(found)
        now = self._recorder.now()
        values = {f"{name}_bytes": size for name, size in found._asdict().items() if size is not None}
        self._recorder.noted(SPAN, now, now, (round, client, attempt), attributes=as_json(values))
