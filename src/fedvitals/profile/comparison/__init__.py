"""Profiles of several runs to what differs between them, and whether that is more than noise."""
