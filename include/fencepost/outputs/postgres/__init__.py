"""Publishes batches to a PostgreSQL table: locks, SQLSTATEs, COPY and conversions. `outputs/table/` has what all kinds
of tables share.
"""
