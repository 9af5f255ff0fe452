"""The output as a Kafka topic. A staged batch is copied there; under `publish: direct` it is written there."""
