"""Fencepost's own pages inside Airflow's UI: data quality, batches, reports.

ledgers.py logins.py pipelines.py dag_settings.py   keep state between requests
comparisons.py               compares tables with their ledgers in the background
cards.py listing.py trend.py   compute the content of pages, as pure functions
charts.py rendering.py wording.py   write SVG, HTML and texts
access.py runs.py            use Airflow's auth manager and database, as no other module does
app.py                       has the routes

Airflow imports plugins in all of its processes, so this package imports nothing before the first request.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fencepost.pages.logins import Connections

Message = MutableMapping[str, Any]


class LazyApp:
    """The ASGI application, imported at its first request. Workers and the DAG processor never import it."""

    def __init__(self, connections: Connections) -> None:
        """Keeps the connections of this Airflow."""
        self._connections = connections

    async def __call__(
        self,
        scope: MutableMapping[str, Any],
        receive: Callable[[], Awaitable[Message]],
        send: Callable[[Message], Awaitable[None]],
    ) -> None:
        app = await asyncio.to_thread(
            self._load
        )  # the import takes about a second, once; other requests go on meanwhile
        await app(scope, receive, send)

    def _load(self) -> Any:
        from fencepost.pages.app import app, ledgers
        from fencepost.pages.logins import Logins

        ledgers.logins = Logins(self._connections)
        return app
