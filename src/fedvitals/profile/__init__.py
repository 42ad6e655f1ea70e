"""Records to where the time, the memory and the bytes went, what held the run up, and what would make it shorter."""
