"""Fencepost: exactly-once batch ETL from Kafka to Kafka, PostgreSQL or Iceberg."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.reading.validated import read_validated

__all__ = ["read_validated"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """Returns `fencepost.read_validated`, which is imported on first use. So importing the package does not import
    Spark.
    """
    if name == "read_validated":
        from fencepost.reading.validated import read_validated

        return read_validated
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
