"""A small client of Airflow's REST API, with the calls that commands need."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Any, Self

import httpx

from fencepost.errors import Retriable

Json = dict[str, Any]


class AirflowUnavailable(Retriable):
    """No API of Airflow answers at the address."""


class AirflowRefused(Retriable):
    """Airflow answered with an error. `status` is the HTTP status."""

    def __init__(self, method: str, path: str, status: int, text: str) -> None:
        super().__init__(f"Airflow refused {method} {path} with {status}: {text[:2000]}")
        self.status = status


class AirflowApi:
    """One logged-in session. A refused call raises AirflowRefused with Airflow's own message."""

    def __init__(self, url: str, username: str, password: str, timeout: float = 60.0) -> None:
        """Logs in immediately. `timeout` is the longest wait for an answer, in seconds.

        Raises:
            AirflowUnavailable: Airflow does not answer.
            AirflowRefused: Airflow refuses the login.
        """
        self.url = url
        self._login = {"username": username, "password": password}
        try:
            # A proxy for the outside world must not see requests to 127.0.0.1.
            self._client = httpx.Client(base_url=url, timeout=timeout, trust_env=False)
            self._log_in()
        except (httpx.HTTPError, httpx.InvalidURL, ValueError, KeyError) as error:
            raise AirflowUnavailable(f"no answer of Airflow's API at {url}: {type(error).__name__}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def call(self, method: str, path: str, body: Json | None = None, **query: Any) -> Json:
        """Sends a request below /api/v2, and returns its JSON answer. It logs in again if the token has expired."""
        answer = self._client.request(method, f"/api/v2{path}", json=body, params=query)
        if answer.status_code == httpx.codes.UNAUTHORIZED:
            self._log_in()
            answer = self._client.request(method, f"/api/v2{path}", json=body, params=query)
        if answer.is_error:
            raise AirflowRefused(method, path, answer.status_code, answer.text)
        return dict(answer.json() or {}) if answer.content else {}

    def dag(self, dag_id: str) -> Json | None:
        """Returns the DAG as the API shows it, or None until the DAG is parsed."""
        return self._found(f"/dags/{dag_id}")

    def pool(self, name: str) -> Json | None:
        """Returns the pool as the API shows it, or None if there is none."""
        return self._found(f"/pools/{name}")

    def connection(self, connection_id: str) -> Json | None:
        """Returns the connection as the API shows it. Returns None if Airflow's database has no connection of that id."""
        return self._found(f"/connections/{connection_id}")

    def import_errors(self) -> list[Json]:
        """Returns the files that could not be parsed, each with filename, stack_trace and timestamp."""
        return list(self.call("GET", "/importErrors", limit=100)["import_errors"])

    def health(self) -> Json:
        """Returns Airflow's components by name, each with its `status`."""
        return self.call("GET", "/monitor/health")

    def emit(self, name: str, uri: str, extra: Mapping[str, Any]) -> bool:
        """Creates an event of that asset. Returns False if Airflow has no such asset, because no task emits it and no
        DAG reads it.
        """
        # `_` is a wildcard in a pattern. An asset that tasks emit and no DAG reads is not active.
        found = self.call("GET", "/assets", uri_pattern=uri, only_active=False, limit=100)["assets"]
        known = [asset["id"] for asset in found if (asset["name"], asset["uri"]) == (name, uri)]
        for asset_id in known:
            self.call("POST", "/assets/events", {"asset_id": asset_id, "extra": dict(extra)})
        return bool(known)

    def _found(self, path: str) -> Json | None:
        """Returns the answer to a GET, or None if Airflow answers 404."""
        try:
            return self.call("GET", path)
        except AirflowRefused as error:
            if error.status == httpx.codes.NOT_FOUND:
                return None
            raise

    def _log_in(self) -> None:
        answer = self._client.post("/auth/token", json=self._login)
        if answer.is_error:
            # Airflow may quote what it refuses.
            answered = answer.text.replace(self._login["password"] or "\0", "***")
            raise AirflowRefused("POST", "/auth/token", answer.status_code, answered)
        self.token = str(answer.json()["access_token"])
        self._client.headers["Authorization"] = f"Bearer {self.token}"
