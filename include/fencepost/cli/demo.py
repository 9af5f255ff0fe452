"""`fencepost demo`: the whole product on this machine, with real flights."""

from __future__ import annotations

from fencepost.errors import NeedsOperator
from fencepost.paths import CHECKOUT


def demo() -> None:
    """Start everything, load real flights, run three days through Airflow, and show the results."""
    if CHECKOUT is None:
        raise NeedsOperator(
            "the repository has the demo's pipeline and DAGs, the package does not. Run `make demo` in a checkout."
        )
    from fencepost.local.demo import demo as run_demo

    run_demo()
