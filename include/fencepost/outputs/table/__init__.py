"""The rules for tables of any store: revisions, leases, owners, and missing batches. The rules need neither SQL nor a
driver.

Each kind of output that is a table builds on this package.
"""
