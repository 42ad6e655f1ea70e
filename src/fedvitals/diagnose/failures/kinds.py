"""What kind of failure a failure is: which of the rules about failures it belongs to. Each belongs to exactly one."""

from __future__ import annotations

import re
from enum import Enum

from fedvitals.diagnose.chart import Chart
from fedvitals.vocabulary import Failure

_TIMEOUT = re.compile(r"timeout|timed ?out|deadline.?exceeded", re.IGNORECASE)
_TRANSFER_KINDS = re.compile(
    r"ConnectionError|ConnectionReset|ConnectionRefused|ConnectionAborted|BrokenPipe|EndOfStream|IncompleteRead"
    r"|ProtocolError|RpcError|AioRpcError|CodecError|RemoteDisconnected|SSLError|gaierror"
)
TRANSFER_STAGES = frozenset({"download", "upload", "encode", "decode"})
BAD_TELEMETRY = "bad telemetry"
_SHAPE = re.compile(
    r"shape|size mismatch|sizes? of tensors?|must match the size|mat1 and mat2|size of tensor|dimension|broadcast"
    r"|expected .* (channels|features|elements|input)|out of bounds|out of range in self|index .* is out of"
    r"|not aligned|expected scalar type|num_samples|empty (dataset|tensor|sequence|batch)|at least one element"
    r"|need at least one array|more than 1 value per channel",
    re.IGNORECASE,
)
_MEMORY = re.compile(r"out of memory|can't allocate|cannot allocate|MemoryError|ended with code -9\b", re.IGNORECASE)


class Kind(Enum):
    """The rule that a failure belongs to."""

    RAISED = "client raised"
    TIMEOUT = "client timed out"
    TRANSFER = "transfer failed"
    DATA = "data or shape"


def kind_of(failure: Failure) -> Kind:
    """What it is foremost: silence, a broken transfer, data or shapes that do not fit, or anything else it raised."""
    if failure.kind == "timeout" or _TIMEOUT.search(failure.kind):
        return Kind.TIMEOUT
    if failure.kind == BAD_TELEMETRY or failure.stage in TRANSFER_STAGES or _TRANSFER_KINDS.search(failure.kind):
        return Kind.TRANSFER
    return Kind.DATA if about_shape(failure) else Kind.RAISED


def about_shape(failure: Failure) -> bool:
    """Whether its words are those of rows or tensors that do not fit."""
    return failure.kind == "shape mismatch" or bool(_SHAPE.search(failure.message))


def about_memory(failure: Failure) -> bool:
    """Whether its words are those of memory that ran out; a worker killed with signal 9 mostly met the kernel's."""
    return bool(_MEMORY.search(f"{failure.kind} {failure.message}"))


def of_clients(chart: Chart, *kinds: Kind) -> list[Failure]:
    """The failures of clients that are of these kinds."""
    return [one for one, kind in chart.shared(_kinds) if kind in kinds]


def _kinds(chart: Chart) -> list[tuple[Failure, Kind]]:
    return [(one, kind_of(one)) for one in chart.failures if one.client is not None]


def cause(failure: Failure) -> tuple[str, str, str]:
    """Equal for failures of one cause: client 3 and client 7, or rounds 1 and 2, may fail for the same reason."""
    message = failure.message.replace(f"client {failure.client}", "client #") if failure.client else failure.message
    return failure.kind, failure.stage, re.sub(r"0x[0-9a-f]+|\d+(\.\d+)?", "#", message)
