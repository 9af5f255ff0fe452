"""Great Expectations is imported without what no verdict needs, and nobody else misses that."""

from __future__ import annotations

import subprocess
import sys

import pytest

IN_TWO_THREADS = """
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib import import_module
from fencepost.quality.loading import _without_unused

with ThreadPoolExecutor(1) as other, _without_unused():
    try:
        import sqlalchemy
    except ModuleNotFoundError:
        pass
    else:
        raise AssertionError("imported here")
    assert other.submit(import_module, "sqlalchemy").result().select
    import altair
    assert "altair.vegalite" not in sys.modules
    assert other.submit(lambda: altair.Chart).result()
assert "altair.vegalite" in sys.modules
"""
AFTERWARDS = """
import sys
from fencepost.quality.loading import load

before = list(sys.meta_path)
load()
assert sys.meta_path == before
assert not {"sqlalchemy", "pyspark.ml", "scipy.stats._stats_py", "altair.vegalite"} & sys.modules.keys()
from great_expectations.expectations.core import ExpectColumnToExist
import sqlalchemy, altair
import pyspark.ml.feature
from scipy import stats
assert sqlalchemy.select and altair.Chart and pyspark.ml.feature.Bucketizer
assert stats.norm.cdf(0) == 0.5
"""


@pytest.mark.parametrize("code", [IN_TWO_THREADS, AFTERWARDS], ids=["in two threads", "afterwards"])
def test_what_is_left_out_of_the_import_is_there_for_others(code: str) -> None:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
