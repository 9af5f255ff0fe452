"""Looks back at batches that were written: the verdict of another suite on them, and how revisions differ. It changes nothing."""
