"""Looks back at batches that were written: what another suite would have said, how revisions differ. It changes nothing."""
