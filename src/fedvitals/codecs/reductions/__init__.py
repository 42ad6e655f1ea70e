"""Which values of an update travel."""
