"""Everything that a reader of a pipeline's output needs. A reader needs neither the pipeline's folder nor a right to
its ledger.

Only `fencepost.read_validated` is public. This package may import `airflow`, which looks up a reader's connections.
"""
