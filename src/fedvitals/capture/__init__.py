"""A running training to records: no I/O, no device sync, no exception gets out."""
