"""Pages of Fencepost's own inside Airflow's UI: data quality, batches, reports.

ledger/reader.py                 the ledger, read on from where the last look ended
ledgers.py pipelines.py          what is kept between requests
snapshot.py trend.py lag.py      what is known of a pipeline, as pure functions
listing.py content.py words.py   which rows, which charts, how they read
charts.py rendering.py           SVG and HTML
access.py runs.py                the door to Airflow's auth manager and database
app.py                           routes

Airflow imports plugins in all of its processes, so nothing is imported here before the first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

Message = MutableMapping[str, Any]


class LazyApp:
    """The ASGI application, imported when it is first asked: workers and the DAG processor never do."""

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        """Pass a request on."""
        app = await asyncio.to_thread(_load)  # about a second, once; other requests go on meanwhile
        await app(scope, receive, send)


def _load() -> Any:
    from fencepost.pages.app import app

    return app
