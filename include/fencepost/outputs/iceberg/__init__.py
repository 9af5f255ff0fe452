"""An Iceberg table as the output: a batch is one snapshot."""
