"""Writes, reads back and publishes batches. The steps use only the protocols in `output.py`."""
