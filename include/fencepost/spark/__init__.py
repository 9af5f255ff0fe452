"""Spark: sessions, exact reads, the user's transform, and the writer in its executors."""
