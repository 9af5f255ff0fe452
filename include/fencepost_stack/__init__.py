"""Runs Kafka, a schema registry, PostgreSQL and Airflow on one machine, and the demo. The product does not import this
package.
"""
