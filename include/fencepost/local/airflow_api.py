"""A thin client of Airflow's REST API, for the demo, the doctor and the tests.

with AirflowApi.of_stack() as api:
    api.await_dag("nyc_flights")
"""

import os
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Any, Self, TypeVar

import httpx

from fencepost.local.errors import LocalStackError
from fencepost.local.state_folder import StateFolder

POLL = 0.5  # seconds
ENDED = frozenset({"success", "failed"})

Json = dict[str, Any]
T = TypeVar("T")


class AirflowApi:
    """One logged-in session. A refused call raises LocalStackError with Airflow's own words."""

    def __init__(self, url: str, username: str, password: str, timeout: float = 60.0) -> None:
        """Logs in at once. `timeout` is for one answer, in seconds."""
        self.url = url
        # A proxy for the outside world must not see requests to 127.0.0.1.
        self._client = httpx.Client(base_url=url, timeout=timeout, trust_env=False)
        self._login = {"username": username, "password": password}
        self._log_in()

    @classmethod
    def of_environment(cls, url: str, timeout: float) -> "AirflowApi":
        """A session with an Airflow of the user's own; the login is in the environment.

        Raises:
            LocalStackError: it does not answer, or refuses the login.
        """
        name, password = os.environ.get("FENCEPOST_AIRFLOW_USER", ""), os.environ.get("FENCEPOST_AIRFLOW_PASSWORD", "")
        try:
            return cls(url, name, password, timeout)
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
            raise LocalStackError(f"no answer of Airflow's API at {url}: {type(error).__name__}") from error

    @classmethod
    def of_stack(cls, state: StateFolder | None = None, *, viewer: bool = False) -> "AirflowApi":
        """A session with the local stack's Airflow, as its admin or as its viewer."""
        from fencepost.local.stack import Stack  # needs packages of the extra `local`

        return cls.of_services(Stack(state).services(), viewer=viewer)

    @classmethod
    def of_services(cls, services: Json, *, viewer: bool = False) -> "AirflowApi":
        """A session with the Airflow of these services, as `Stack.services` gives them."""
        airflow = services["airflow"]
        if not airflow["running"]:
            raise LocalStackError("Airflow does not run here. Start it: `make up`.")
        user = airflow["viewer"] if viewer else airflow
        return cls(airflow["url"], user["username"], user["password"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: Json | None = None, **query: Any) -> Json:
        """One request below /api/v2, and its JSON answer. Logs in again when the token has expired."""
        answer = self._client.request(method, f"/api/v2{path}", json=body, params=query)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            answer = self._client.request(method, f"/api/v2{path}", json=body, params=query)
        if answer.is_error:
            raise AirflowRefused(method, path, answer.status_code, answer.text)
        return dict(answer.json()) if answer.content else {}

    def dag(self, dag_id: str) -> Json | None:
        """The DAG as the API shows it; None until it is parsed."""
        return self._found(f"/dags/{dag_id}")

    def pool(self, name: str) -> Json | None:
        """The pool as the API shows it; None if there is none."""
        return self._found(f"/pools/{name}")

    def connection(self, connection_id: str) -> Json | None:
        """The connection as the API shows it; None if Airflow's database has none of that id."""
        return self._found(f"/connections/{connection_id}")

    def await_dag(self, dag_id: str, timeout: float = 120.0) -> Json:
        """Wait until the DAG is parsed. The error after the time-out lists the import errors."""
        try:
            return await_value(lambda: self.dag(dag_id), f"DAG {dag_id} to be parsed", timeout)
        except LocalStackError as error:
            broken = "".join(f"\n{found['filename']}:\n{found['stack_trace']}" for found in self.import_errors())
            raise LocalStackError(f"{error}{broken}") from None

    def import_errors(self) -> list[Json]:
        """Files that could not be parsed: filename, stack_trace, timestamp."""
        return list(self.call("GET", "/importErrors", limit=100)["import_errors"])

    def unpause(self, dag_id: str) -> None:
        """Let the scheduler run the DAG."""
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
        """Create a backfill of the intervals that begin between `first` and `last`, both included.

        `reprocess` is none, failed or completed: which existing runs are run again. Both times need a time zone.
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
        """Wait until all runs of a backfill have ended, with or without success."""

        def completed() -> Json | None:
            found = self.call("GET", f"/backfills/{backfill_id}")
            return found if found["completed_at"] else None

        return await_value(completed, f"backfill {backfill_id} to complete", timeout)

    def dag_runs(self, dag_id: str) -> list[Json]:
        """All runs, the earliest interval first: dag_run_id, state, data_interval_start, data_interval_end, ..."""
        return list(self.call("GET", f"/dags/{dag_id}/dagRuns", limit=100, order_by="logical_date")["dag_runs"])

    def await_run(self, dag_id: str, run_id: str, states: Iterable[str] = ENDED, timeout: float = 600.0) -> Json:
        """Wait until a run is in one of these states."""
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
        """Wait until there is an ended run for each of these interval starts; `seen` gets every run polled."""
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
        """The latest try of each task: task_id, state, try_number, start_date, end_date, duration, ..."""
        return list(self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances", limit=100)["task_instances"])

    def await_task(
        self, dag_id: str, run_id: str, task_id: str, states: Iterable[str] = ENDED, timeout: float = 300.0
    ) -> Json:
        """Wait until a task of a run is in one of these states."""
        wanted = frozenset(states)

        def reached() -> Json | None:
            task = self.call("GET", f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}")
            return task if task["state"] in wanted else None

        return await_value(reached, f"{dag_id}.{task_id} of {run_id} to be {' or '.join(sorted(wanted))}", timeout)

    def task_log(self, dag_id: str, run_id: str, task_id: str, try_number: int = 1) -> str:
        """One try's log, a line per event."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/logs/{try_number}"
        content = self.call("GET", path, full_content=True)["content"]
        return "\n".join(line if isinstance(line, str) else str(line["event"]) for line in content)

    def xcom(self, dag_id: str, run_id: str, task_id: str, key: str = "return_value") -> Any:
        """The value that a task returned."""
        path = f"/dags/{dag_id}/dagRuns/{run_id}/taskInstances/{task_id}/xcomEntries/{key}"
        return self.call("GET", path, deserialize=True)["value"]

    def clear(self, dag_id: str, run_id: str, task_ids: Iterable[str], *, downstream: bool = True) -> list[Json]:
        """Clear tasks of a run, whatever their state, so that they run again; returns the cleared instances."""
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
        """The pool with this many slots; made or changed if necessary."""
        found = self.pool(name)
        if found is None:
            self.call("POST", "/pools", {"name": name, "slots": slots, "description": description})
        elif found["slots"] != slots:
            body = {"pool": name, "slots": slots, "include_deferred": found["include_deferred"]}
            self.call("PATCH", f"/pools/{name}", body, update_mask="slots")

    def pools(self) -> list[Json]:
        """All pools: name, slots, running_slots, ..."""
        return list(self.call("GET", "/pools", limit=100)["pools"])

    def emit(self, name: str, uri: str, extra: Mapping[str, Any]) -> bool:
        """Create an event of that asset; False if Airflow has no such asset: no task emitted it, and no DAG reads it."""
        # `_` is a wildcard in a pattern. An asset that only tasks emit is not active.
        found = self.call("GET", "/assets", uri_pattern=uri, only_active=False, limit=100)["assets"]
        known = [asset["id"] for asset in found if (asset["name"], asset["uri"]) == (name, uri)]
        for asset_id in known:
            self.call("POST", "/assets/events", {"asset_id": asset_id, "extra": dict(extra)})
        return bool(known)

    def _found(self, path: str) -> Json | None:
        """The answer to a GET; None where Airflow has nothing there."""
        try:
            return self.call("GET", path)
        except AirflowRefused as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise

    def _log_in(self) -> None:
        answer = self._client.post("/auth/token", json=self._login)
        if answer.is_error:
            told = answer.text.replace(self._login["password"] or "\0", "***")  # what is refused may be quoted
            raise AirflowRefused("POST", "/auth/token", answer.status_code, told)
        self.token = str(answer.json()["access_token"])
        self._client.headers["Authorization"] = f"Bearer {self.token}"


class AirflowRefused(LocalStackError):
    """Airflow answered with an error; `status` is HTTP's."""

    def __init__(self, method: str, path: str, status: int, text: str) -> None:
        super().__init__(f"Airflow refused {method} {path} with {status}: {text[:2000]}")
        self.status = status


def await_value(poll: Callable[[], T | None], what: str, timeout: float) -> T:
    """Poll until there is a value. The LocalStackError after the time-out names `what`."""
    deadline = time.monotonic() + timeout
    while (value := poll()) is None:
        if time.monotonic() > deadline:
            raise LocalStackError(f"waited {timeout:.0f} s for {what}; it did not come.")
        time.sleep(POLL)
    return value
