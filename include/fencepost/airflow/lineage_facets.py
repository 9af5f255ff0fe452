"""Fencepost's own facet of OpenLineage. Its name begins with `fencepost_`, and its schema is `docs/lineage-batch.schema.json`.

Only `lineage.py` imports this module, and only if the provider is installed.
"""

from __future__ import annotations

import attr
from openlineage.client.facet_v2 import RunFacet


@attr.define(kw_only=True)
class FencepostBatchRunFacet(RunFacet):
    """The batch that a task was about, in the terms of an announcement."""

    pipeline: str
    batch: str
    interval: dict[str, str]
    revision: int
    state: str
    adds_to: int | None = None
    verdict: str | None = None
    validation: int | None = None
    rows: int | None = None
    quarantined: dict[str, int] = attr.field(factory=dict)

    @staticmethod
    def _get_schema() -> str:
        return "urn:fencepost:lineage-batch:1"
