"""The path of a row: read, decode, transform, flag, route. It is the only way from records to rows.

It uses Spark, Kafka and the formats, and knows no step, no output and no ledger.
"""
