"""What the records say about each client's updates: measures, their course over the rounds, and a score."""
