"""Where batches are written, and how they are read back."""
