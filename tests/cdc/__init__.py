"""Change data as it is: PostgreSQL, Debezium's connector on Kafka Connect, Kafka, and Fencepost behind them. `make cdc`."""
