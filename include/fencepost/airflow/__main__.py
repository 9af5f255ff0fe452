"""`python -m fencepost.airflow`, after `airflow db migrate`: make what the DAGs need in Airflow's database."""

from fencepost.airflow.pools import ensure_pools

ensure_pools()
