"""Decides what may happen to a batch, with pure functions of the ledger. The model in `tests/model` explores them."""
