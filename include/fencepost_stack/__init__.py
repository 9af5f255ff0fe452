"""Kafka, a schema registry, PostgreSQL and Airflow on one machine, and the demo. Nothing of the product imports this."""
