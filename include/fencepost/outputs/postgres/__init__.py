"""The output as a PostgreSQL table: locks, SQLSTATEs, COPY, conversions. `outputs/table/` has what is common to all tables."""
