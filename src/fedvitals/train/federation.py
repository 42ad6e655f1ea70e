"""The rows of a federation and who holds them: what data and partition hand to the executors."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, eq=False)
class Federation:
    """All rows in two tensors; each client is a list of row numbers, so batches are made by index."""

    x: torch.Tensor  # float32 features or images (channels first), int64 tokens
    y: torch.Tensor  # int64 classes
    clients: tuple[str, ...]  # ids, in order of index
    train_rows: tuple[torch.Tensor, ...]  # int64 row numbers, one tensor a client
    holdout_rows: tuple[torch.Tensor, ...]  # a client's own rows kept for judging; may be empty
    test_rows: torch.Tensor  # rows of nobody, for judging the global model
    classes: int
    kind: str  # "vector", "image" [c, h, w], "sequence" [time, channels] or "tokens"
    vocabulary: int = 0  # of tokens
    digest: str = ""  # SHA-256 of rows and partition

    @property
    def input_shape(self) -> tuple[int, ...]:
        return tuple(self.x.shape[1:])

    def rows_of(self, client: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Features and classes of a client's own rows."""
        rows = self.train_rows[client]
        return self.x[rows], self.y[rows]
