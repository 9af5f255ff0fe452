"""Sessions with PostgreSQL, for tables of output and for side tables.

The package knows the driver and the meanings of the server's errors. It knows no table.
"""
