"""Tables of any store: revisions, leases, owners, and missing batches, without SQL and without a driver.

Each kind of output that is a table builds on this.
"""
