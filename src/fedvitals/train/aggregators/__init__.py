"""Ways to make one step of many updates: one file a family, an `init`/`apply` pair each."""
