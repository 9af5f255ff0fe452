"""Fencepost: exactly-once batch ETL from Kafka to Kafka."""

__version__ = "0.1.0"
