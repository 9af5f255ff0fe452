"""The path of a row: read, decode, transform, flag, route. Whoever makes rows of records goes this way.

Rooms above use it. It knows Spark, Kafka and the formats, and no step, no output and no ledger.
"""
