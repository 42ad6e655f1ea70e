"""Records to disk and back. One writer a run, any number of readers."""
