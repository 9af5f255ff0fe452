"""`python -m fencepost.airflow`, after `airflow db migrate`: creates the pool that the DAGs need in Airflow's database."""

from fencepost.airflow.pools import ensure_pools

ensure_pools()
