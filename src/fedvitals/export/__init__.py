"""Records -> the formats of other tools. One file a format; each is written as it is read."""
