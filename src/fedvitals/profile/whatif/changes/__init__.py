"""Kinds of changes, one a file: `changes(model)` gives what may be worth making, each predicted or declined."""
