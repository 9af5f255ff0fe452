"""Kafka's clients, their errors, and transactions."""
