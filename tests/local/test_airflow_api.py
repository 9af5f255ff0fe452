"""The client of Airflow's API does, on a running Airflow, what the demo and other tests need of it."""

import pytest

from fencepost_stack.airflow_api import StackAirflow, await_value
from fencepost_stack.errors import LocalStackError
from fencepost_stack.stack import Stack

pytestmark = [pytest.mark.deep, pytest.mark.stack]


def test_a_pool_is_made_once_and_resized(stack: Stack) -> None:
    with StackAirflow.of_stack(stack.state) as api:
        for slots in (1, 1, 2):
            api.ensure_pool("fencepost_test", slots)
            assert [pool["slots"] for pool in api.pools() if pool["name"] == "fencepost_test"] == [slots]


def test_a_broken_file_dropped_in_shows_as_an_import_error_and_in_the_wait(stack: Stack) -> None:
    broken = stack.folders.dags / "broken.py"
    broken.write_text("from airflow.sdk import dag\nraise ValueError('a broken pipeline')\n")
    try:
        with StackAirflow.of_stack(stack.state) as api:
            await_value(lambda: api.import_errors() or None, "the import error to show", 60.0)
            with pytest.raises(LocalStackError, match=r"(?s)DAG broken.*ValueError: a broken pipeline"):
                api.await_dag("broken", timeout=0.0)
    finally:
        broken.unlink()
