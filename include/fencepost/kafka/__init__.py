"""Kafka: clients, the meaning of their errors, questions to the cluster, and transactions."""
