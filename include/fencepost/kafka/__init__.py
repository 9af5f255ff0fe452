"""Creates Kafka clients, translates their errors, sends requests to the cluster, and writes transactions."""
