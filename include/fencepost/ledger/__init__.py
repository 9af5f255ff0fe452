"""The compacted topic that holds the truth about every batch."""
