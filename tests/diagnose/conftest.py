"""Puts this folder on the path, for what the tests of the rules share."""
