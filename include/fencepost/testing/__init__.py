"""A pytest plugin that runs a pipeline's transform on the rows of a test, without Kafka.

pytest loads this module, by its entry point, in every project that has the package. So the plugin imports nothing until
a fixture is used: no Spark, no Great Expectations, and not the rest of the package.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fencepost.testing.trial import Trials

__all__ = ["fencepost_transform"]


@pytest.fixture(scope="session")
def fencepost_transform() -> Iterator[Trials]:
    """Runs a pipeline's transform and its quarantine rules on rows: `fencepost_transform("orders", [{"n": 1}])`. With
    several sources the rows are given by the source's name: `fencepost_transform("paid", {"orders": [...], "payments": [...]})`.

    One Spark session serves all tests of a process. Each call has a separate session on the same JVM, so no transform
    sees what another transform has set.
    """
    from fencepost.testing.trial import Trials

    with Trials() as trials:
        yield trials
