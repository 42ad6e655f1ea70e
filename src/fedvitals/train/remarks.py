"""What else is worth recording of a participation, as its metrics: transfers begun again, what its codec still owes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from fedvitals.capture.attributes import as_json
from fedvitals.train.uplink import Uplink


def remarks(
    uplink: Uplink, clients: Sequence[str], retries: Sequence[Mapping[str, int]]
) -> dict[str, list[str | None]]:
    """A column of metrics, or none where nobody has any. `retries` by phase, a client each; empty on the real clock."""
    if not uplink.tells and not retries:
        return {}
    told: list[dict[str, float]] = [uplink.told(client) for client in clients]
    for one, counts in zip(told, retries, strict=False):
        one.update({f"{phase}_retries": count for phase, count in counts.items()})
    return {"metrics": [as_json(one) if one else None for one in told]} if any(told) else {}
