"""What others do to find bad clients, in our own words, under the same protocol as our rules."""
