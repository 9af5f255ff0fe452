"""A pipeline's settings: read, checked, and digested."""
