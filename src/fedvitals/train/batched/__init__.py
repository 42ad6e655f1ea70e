"""Models whose weights have a client axis: a whole cohort goes through as one program."""

from fedvitals.train.batched.model import BatchedModel, Unbatchable, batched_model

__all__ = ["BatchedModel", "Unbatchable", "batched_model"]
