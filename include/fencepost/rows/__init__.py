"""The path of a row: read, decode, transform, flag, route. Records become rows only on this path.

The package uses Spark, Kafka and the formats, and knows no step, no output and no ledger.
"""
