"""Where batches are written, how they are read back and published. The steps know the protocol in `output.py` alone."""
