"""`fencepost demo`: the whole product on this machine, with real flights."""

from __future__ import annotations


def demo() -> None:
    """Start everything, load real flights, run three days through Airflow, and show what came of it."""
    from fencepost.local.demo import demo as run_demo

    run_demo()
