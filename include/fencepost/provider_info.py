"""The entry for this package in Airflow's list of providers. Airflow loads this module early, so it imports nothing of
Fencepost.
"""

from __future__ import annotations

from importlib.metadata import version
from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Returns the metadata for the entry point `apache_airflow_provider`, by Airflow's schema
    `provider_info.schema.json`.
    """
    return {
        "package-name": "fencepost",
        "name": "Fencepost",
        "description": "Exactly-once batch ETL from Kafka to Kafka, PostgreSQL or Iceberg, judged by Great Expectations.",
        "versions": [version("fencepost")],
        "integrations": [{"integration-name": "Fencepost", "tags": ["software"]}],
        "operators": [
            {
                "integration-name": "Fencepost",
                "python-modules": [
                    "fencepost.airflow.decision",
                    "fencepost.airflow.operators",
                    "fencepost.airflow.spark_operator",
                ],
            }
        ],
    }
