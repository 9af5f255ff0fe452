"""Publishes batches to a Kafka topic. A staged batch is copied to the topic. Under `publish: direct` a batch is written
there directly.
"""
