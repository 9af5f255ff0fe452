"""Pipelines with the tests' schema registry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from fencepost.config.pipeline import Pipeline
from fencepost_stack.schema_registry import SchemaRegistry

Make = Callable[..., Pipeline]

SAME = "def transform(frame):\n    return frame\n"
EXPECTATIONS = """
expectations:
  - type: expect_column_values_to_be_between
    kwargs: {column: n, min_value: 0, max_value: 100}
"""


@pytest.fixture
def make(request: pytest.FixtureRequest, make_pipeline: Make, schema_registry: SchemaRegistry) -> Make:
    """A pipeline with this registry; reads the module's FORMAT, and writes JSON unless a test says otherwise."""

    def make(transform: str = SAME, expectations: str = EXPECTATIONS, **changes: Any) -> Pipeline:
        changes["source"] = {"format": request.module.FORMAT, "schema": {}} | changes.get("source", {})
        changes["schema_registry"] = {"url": schema_registry.url} | changes.get("schema_registry", {})
        return make_pipeline(transform, expectations, **changes)

    return make
