"""Adds to the client of Airflow's REST API what the demo and the tests need: backfills, and waiting for runs and tasks.

with StackAirflow.of_stack() as api:
    api.await_dag("nyc_flights")
"""

import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Any, TypeVar

from fencepost.cli.airflow_api import AirflowApi, Json
from fencepost_stack.errors import LocalStackError
from fencepost_stack.state_folder import StateFolder

POLL = 1.0  # seconds
ENDED = frozenset({"success", "failed"})

T = TypeVar("T")


class StackAirflow(AirflowApi):
    """A session with the local stack's Airflow, or with another Airflow."""

    @classmethod
    def of_stack(cls, state: StateFolder | None = None, *, viewer: bool = False) -> "StackAirflow":
        """Returns a session with the local stack's Airflow, as its admin or as its viewer."""
        from fencepost_stack.stack import Stack  # needs packages of the extra `local`

        return cls.of_services(Stack(state).services(), viewer=viewer)

    @classmethod
    def of_services(cls, services: Json, *, viewer: bool = False) -> "StackAirflow":
        """Returns a session with the Airflow of these services, as `Stack.services` gives them."""
        airflow = services["airflow"]
        if not airflow["running"]:
            raise LocalStackError("Airflow does not run here. Start it: `make up`.")
        user = airflow["viewer"] if viewer else airflow
        return cls(airflow["url"], user["username"], user["password"])

    def await_dag(self, dag_id: str, timeout: float = 120.0) -> Json:
        """Waits until the DAG is parsed. The error after the time-out lists the import errors."""
        try:
            return await_value(lambda: self.dag(dag_id), f"DAG {dag_id} to be parsed", timeout)
        except LocalStackError as error:
            broken = "".join(f"\n{found['filename']}:\n{found['stack_trace']}" for found in self.import_errors())
            raise LocalStackError(f"{error}{broken}") from None

    def unpause(self, dag_id: str) -> None:
        """Lets the scheduler run the DAG."""
        self.call("PATCH", f"/dags/{dag_id}", {"is_paused": False}, update_mask="is_paused")

    def backfill(
        self,
        dag_id: str,
        first: datetime,
        last: datetime,
        *,
        reprocess: str = "none",
        conf: Mapping[str, Any] | None = None,
        max_active_runs: int = 1,
    ) -> Json:
        """Creates a backfill of the intervals that begin from `first` to `last`. Both times are included.

        `reprocess` is none, failed or completed, and says which existing runs are run again. Both times need a time
        zone.
        """
        body = {
            "dag_id": dag_id,
            "from_date": first.isoformat(),
            "to_date": last.isoformat(),
            "reprocess_behavior": reprocess,
            "dag_run_conf": dict(conf or {}),
            "max_active_runs": max_active_runs,
        }
        return self.call("POST", "/backfills", body)

    def await_backfill(self, backfill_id: int, timeout: float = 600.0) -> Json:
        """Waits until all runs of a backfill have ended, with or without success."""

        def completed() -> Json | None:
            found = self.call("GET", f"/backfills/{backfill_id}")
            return found if found["completed_at"] else None

        return await_value(completed, f"backfill {backfill_id} to complete", timeout)

    def dag_runs(self, dag_id: str) -> list[Json]:
        """Returns all runs, the earliest interval first: dag_run_id, state, data_interval_start, data_interval_end, ..."""
        return list(self.call("GET", f"/dags/{dag_id}/dagRuns", limit=100, order_by="logical_date")["dag_runs"])

    def await_run(self, dag_id: str, run_id: str, states: Iterable[str] = ENDED, timeout: float = 600.0) -> Json:
        """Waits until a run is in one of these states."""
        wanted = frozenset(states)

        def reached() -> Json | None:
            run = self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}")
            return run if run["state"] in wanted else None

        return await_value(reached, f"run {run_id} of {dag_id} to be {' or '.join(sorted(wanted))}", timeout)

    def await_intervals(
        self,
        dag_id: str,
        starts: Iterable[datetime],
        timeout: float = 600.0,
        seen: Callable[[Json], None] | None = None,
    ) -> list[Json]:
        """Waits until there is an ended run for each of these interval starts. `seen` gets every run that was polled."""
        wanted = sorted(starts)

        def ended() -> list[Json] | None:
            by_start = {datetime.fromisoformat(r["data_interval_start"]): r for r in self.dag_runs(dag_id)}
            runs = [by_start[start] for start in wanted if start in by_start]
            for run in runs if seen is not None else ():
                assert seen is not None
                seen(run)
            return runs if len(runs) == len(wanted) and all(run["state"] in ENDED for run in runs) else None

        return await_value(ended, f"{len(wanted)} runs of {dag_id} to end", timeout)

    def task_instances(self, dag_id: str, run_id: str) -> list[Json]:
        """Returns the latest attempt of each task: task_id, state, try_number, start_date, end_date, duration, ..."""
        return list(self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", limit=100)["task_instances"])

    def await_task(
        self, dag_id: str, run_id: str, task_id: str, states: Iterable[str] = ENDED, timeout: float = 300.0
    ) -> Json:
        """Waits until a task of a run is in one of these states."""
        wanted = frozenset(states)

        def reached() -> Json | None:
            task = self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")
            return task if task["state"] in wanted else None

        return await_value(reached, f"{dag_id}.{task_id} of {run_id} to be {' or '.join(sorted(wanted))}", timeout)

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """Returns the log of one attempt, with a line for each event."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        content = self.call("GET", path, full_content=True)["content"]
        return "\n".join(line if isinstance(line, str) else str(line["event"]) for line in content)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """Returns the value that a task returned."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.call("GET", path, deserialize=True)["value"]

    def clear(self, dag_id: str, run_id: str, task_ids: Iterable[str], *, downstream: bool = True) -> list[Json]:
        """Clears tasks of a run, whatever their state, so that they run again. Returns the cleared instances."""
        body = {
            "dry_run": False,
            "dag_run_id": run_id,
            "task_ids": list(task_ids),
            "include_downstream": downstream,
            "only_failed": False,
            "reset_dag_runs": True,
        }
        return list(self.call("POST", f"/dags/{dag_id}/clearTaskInstances", body)["task_instances"])

    def ensure_pool(self, name: str, slots: int, description: str = "") -> None:
        """Makes sure that the pool exists and has this many slots."""
        found = self.pool(name)
        if found is None:
            self.call("POST", "/pools", {"name": name, "slots": slots, "description": description})
        elif found["slots"] != slots:
            body = {"pool": name, "slots": slots, "include_deferred": found["include_deferred"]}
            self.call("PATCH", f"/pools/{name}", body, update_mask="slots")

    def pools(self) -> list[Json]:
        """Returns all pools: name, slots, running_slots, ..."""
        return list(self.call("GET", "/pools", limit=100)["pools"])


def await_value(poll: Callable[[], T | None], what: str, timeout: float) -> T:
    """Polls until there is a value. The LocalStackError after the time-out names `what`."""
    deadline = time.monotonic() + timeout
    while (value := poll()) is None:
        if time.monotonic() > deadline:
            raise LocalStackError(f"waited {timeout:.0f} s for {what}; it did not come.")
        time.sleep(POLL)
    return value
