"""A profile to what changes to the run would have done to its time."""
