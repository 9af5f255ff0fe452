"""Reads, checks and digests a pipeline's settings."""
