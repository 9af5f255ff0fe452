"""The four steps of a batch: plan, write, validate, advance."""
