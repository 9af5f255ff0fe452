"""Kinds of output that only tests have."""
