"""The pool that limits how many Spark jobs run at once.

A DAG's `max_active_runs` does not apply to its backfills, so only a pool limits all runs of all pipelines together. Airflow never
schedules a task whose pool does not exist, so `ensure_pools` runs before the scheduler starts.
"""

from __future__ import annotations

from fencepost.config.sections import DEFAULT_POOL

SPARK_POOL = DEFAULT_POOL
SPARK_POOL_SLOTS = 2


def ensure_pools() -> None:
    """Creates the pool if it is missing. A number of slots that an operator has set is kept.

    `python -m fencepost.airflow` runs this. It needs Airflow's database, which tasks may not use.
    """
    from airflow.models.pool import Pool
    from airflow.utils.session import create_session

    with create_session() as session:
        if Pool.get_pool(SPARK_POOL, session=session) is None:
            Pool.create_or_update_pool(
                name=SPARK_POOL,
                slots=SPARK_POOL_SLOTS,
                description="Spark jobs of all pipelines that may run at once",
                include_deferred=False,
                session=session,
            )
