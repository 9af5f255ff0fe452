"""The rules for tables of any store: revisions, leases, owners, and missing batches. They need neither SQL nor a
driver.

Each kind of output that is a table builds on this package.
"""
