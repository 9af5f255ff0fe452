"""Where batches are written, read back and published. The steps use only the protocols in `output.py`."""
