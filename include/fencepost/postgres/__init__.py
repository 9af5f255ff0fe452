"""Sessions with PostgreSQL, for output tables and for whatever else reads from a server.

The package knows the driver and the meanings of the server's errors. It knows no table.
"""
