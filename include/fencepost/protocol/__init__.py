"""What may happen to a batch, decided by pure functions of the ledger; what the model in `tests/model` explores."""
