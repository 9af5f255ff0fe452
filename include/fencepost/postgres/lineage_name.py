"""Names a table of PostgreSQL for lineage."""

from __future__ import annotations

from collections.abc import Mapping

from fencepost.config.sections import Lineage

PORT = "5432"


def lineage_name(settings: Mapping[str, str], lineage: Lineage, table: str) -> tuple[str, str]:
    """Returns OpenLineage's namespace of the server with these settings, and the table's name with its database."""
    host, port = (settings.get(name, "").partition(",")[0].strip() for name in ("host", "port"))
    place = lineage.postgres or f"{host or 'localhost'}:{port or PORT}"
    return f"postgres://{place}", f"{settings['dbname']}.{table}"
