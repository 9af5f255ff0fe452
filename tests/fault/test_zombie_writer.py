"""An attempt that is paused while another finishes the work, and then goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import TRANSFORM, day
from fencepost.local.broker import Broker
from fencepost.settings import Pipeline
from kafka_tools import read_all
from steps import latest

from .faults import PARTITIONS, PER_PARTITION, Fault, finish

Make = Callable[..., Pipeline]

pytestmark = pytest.mark.fault


def test_a_zombie_with_everything_sent_is_refused_at_its_commit(
    broker: Broker, make_pipeline: Make, tmp_path: Path
) -> None:
    """The retry's init_transactions has raised the epoch: the zombie's commit fails, its records stay invisible."""
    fault = Fault(broker, make_pipeline(), tmp_path)
    fault.fill()
    failpoint = "write.committing#0=stop"
    zombie = fault.start(failpoint)
    pid = fault.struck(failpoint)
    assert fault.run() == (0, "")
    os.kill(pid, signal.SIGCONT)
    code, error = finish(zombie)
    assert code == 3
    assert error.startswith("WriterFenced: ")
    assert fault.differences() == []


@pytest.mark.parametrize("revised", [False, True])
def test_a_zombie_that_starts_late_writes_nothing(
    broker: Broker, make_pipeline: Make, tmp_path: Path, *, revised: bool
) -> None:
    """Paused before init_transactions it fences the valid attempt's id, and the mark tells it that it is late.

    Under the same lease it finds the work done; under an older one it stops.
    """
    fault = Fault(broker, make_pipeline(), tmp_path)
    fault.fill()
    failpoint = "write.init#0=stop"
    zombie = fault.start(failpoint)
    pid = fault.struck(failpoint)
    if revised:
        make_pipeline(TRANSFORM + "# mended\n", name=fault.pipeline.name)
    assert fault.run() == (0, "")
    os.kill(pid, signal.SIGCONT)
    code, error = finish(zombie)
    assert (code, error.split(":")[0]) == ((4, "Superseded") if revised else (0, ""))
    batch = latest(fault.pipeline, day(1))
    assert batch.revision == (2 if revised else 1)
    counted = [r for r in read_all(broker.bootstrap, fault.pipeline.output.topic) if r.batch == str(batch.id)]
    assert len(counted) == len({(r.key, r.json["n"]) for r in counted}) == PARTITIONS * PER_PARTITION
