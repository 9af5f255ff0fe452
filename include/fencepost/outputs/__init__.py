"""Where batches are written, and how they are read back and published. The steps know only the protocol in `output.py`."""
