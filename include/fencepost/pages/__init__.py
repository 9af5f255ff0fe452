"""Fencepost's own pages inside Airflow's UI: data quality, batches, reports.

ledger/reader.py                 reads the ledger from where the last look ended
ledgers.py pipelines.py carried.py    state kept between requests
comparisons.py                   tables compared with their ledgers in the background
snapshot.py trend.py lag.py      a pipeline's state, trend and lag, as pure functions
listing.py content.py words.py   rows, charts, and their texts
charts.py rendering.py           SVG and HTML
access.py runs.py                the door to Airflow's auth manager and database
app.py                           routes

Airflow imports plugins in all of its processes, so nothing is imported here before the first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.config.pipeline import Pipeline

Message = MutableMapping[str, Any]


class LazyApp:
    """The ASGI application, imported at its first request. Workers and the DAG processor never make one."""

    def __init__(self, look_up: Callable[[Pipeline], Pipeline]) -> None:
        """`look_up` gives a pipeline the settings of its connections in Airflow."""
        self._look_up = look_up

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Pass a request on."""
        app = await asyncio.to_thread(self._load)  # about a second, once; other requests go on meanwhile
        await app(scope, receive, send)

    def _load(self) -> Any:
        from fencepost.pages.app import app, ledgers

        ledgers.look_up = self._look_up
        return app
