"""How much of its update a client sends: as much as its link carries until the round's deadline.

From its last round: the bandwidth that its upload reached, and the time that the deadline left for it. A client that
was never heard sends the share that the job names.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedvitals.codecs import Codec, share_of

LEAST, MOST = 1e-4, 1.0  # of an update
SPARE = 0.8  # of the time that is left: links are not always as good as last time
QUICKEST_S = 1e-6


class Adaptive:
    """A share a client. CodecError for a codec that has none to choose."""

    def __init__(self, codec: Codec, deadline_s: float) -> None:
        self._usual = share_of(codec)
        self._deadline_s = deadline_s
        self._shares: dict[str, float] = {}

    def share(self, client: str) -> float:
        return self._shares.get(client, self._usual)

    def heard(self, client: str, phases_s: Mapping[str, float]) -> None:
        """Its message took its upload; everything before that takes the same again."""
        upload_s = max(phases_s.get("upload", 0.0), QUICKEST_S)
        left_s = max(SPARE * self._deadline_s - (sum(phases_s.values()) - upload_s), 0.0)
        share = self.share(client) * left_s / upload_s
        self._shares[client] = min(max(share, LEAST), MOST)
