"""The engine's data, at its origin: one file a source, each giving the same raw arrays."""
