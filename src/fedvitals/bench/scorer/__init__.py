"""The scorer that tells bad clients from unusual ones: how it is taught."""
