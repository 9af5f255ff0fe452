"""What may happen to a batch: pure functions of the ledger. The model in `tests/model` explores them."""
