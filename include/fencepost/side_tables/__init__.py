"""Side tables: reads what a transform looks something up in, once for each attempt, and checks it.

The package uses Spark, Kafka, PostgreSQL and the formats. It knows no step, no output and no ledger.
"""
