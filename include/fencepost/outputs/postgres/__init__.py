"""The output as a table of PostgreSQL: locks, SQLSTATEs, COPY, conversions. What holds for any table is in `outputs/table/`."""
