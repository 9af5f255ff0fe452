"""The ledger: the compacted topic that records the state of every batch."""
