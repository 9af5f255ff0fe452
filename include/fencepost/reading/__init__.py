"""What a reader of a pipeline's output needs, who has neither the pipeline's folder nor a right to its ledger.

Only `fencepost.read_validated` is for others. It stands above `airflow`, which has a reader's connections.
"""
