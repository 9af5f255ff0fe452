"""One stack and one broker for the folder's tests."""

import os
from collections.abc import Iterator

import pytest

from fencepost_stack.broker import Broker
from fencepost_stack.stack import Stack
from local.local_stack import SHARED_JARS, add_pipeline, new_stack


def _remove_settings_of_the_user(patch: pytest.MonkeyPatch) -> None:
    """The person who runs the tests may have a Kafka of their own, ports they like, or another Airflow."""
    for name in list(os.environ):
        ours = name in {"KAFKA_BOOTSTRAP", "SCHEMA_REGISTRY_URL"} or name.startswith(("FENCEPOST_", "AIRFLOW_"))
        if ours and name != "FENCEPOST_CI_RUN":  # .ci/run knows leftovers by it
            patch.delenv(name)


@pytest.fixture(autouse=True)
def _clean_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    _remove_settings_of_the_user(monkeypatch)


@pytest.fixture(scope="package")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A running stack with one DAG, and a pipeline that needs a registry. A test that changes what runs leaves it running
    again."""
    stack = new_stack(tmp_path_factory.mktemp("stack"))
    add_pipeline(stack)
    with pytest.MonkeyPatch.context() as patch:
        _remove_settings_of_the_user(patch)
        stack.up()
    yield stack
    stack.down()


@pytest.fixture(scope="package")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker alone, with a second listener that asks ann for her password."""
    # By default a start after a kill waits nine seconds for the dead broker's session to end.
    quick = {"broker.session.timeout.ms": "3000", "broker.heartbeat.interval.ms": "500"}
    folder = tmp_path_factory.mktemp("broker")
    with Broker(folder, properties=quick, sasl_users={"ann": "right"}, jars=SHARED_JARS / "kafka") as broker:
        yield broker
