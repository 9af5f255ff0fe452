"""What a reader of a pipeline's output needs, without the pipeline's folder or a right to its ledger.

Only `fencepost.read_validated` is public. This room is above `airflow`, which looks up a reader's connections.
"""
