"""What holds for a table of any store: revisions, leases, owners, and what a table lacks. No SQL, and no driver.

A kind of output that is a table builds on it.
"""
