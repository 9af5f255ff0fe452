"""Fencepost's speed beside what else one would use: `make bench`, and README.md here."""
