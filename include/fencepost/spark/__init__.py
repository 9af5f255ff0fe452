"""Starts Spark's sessions, describes Spark's errors, and pins the settings of sessions and jobs."""
