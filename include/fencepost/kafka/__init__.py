"""Kafka: clients, the meaning of their errors, requests to the cluster, and transactions."""
