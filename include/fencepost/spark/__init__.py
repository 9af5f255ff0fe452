"""Spark: sessions, exact reads, the user's transform, and the writer that runs in executors."""
