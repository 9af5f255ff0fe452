"""The output as a Kafka topic: a staged batch is copied there, or it is written there directly. See `output_kinds.py`."""
