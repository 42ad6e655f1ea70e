"""Which faults are found, in whom, how soon, and how often a clean run is accused; beside other detectors."""
