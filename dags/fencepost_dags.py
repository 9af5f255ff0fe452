"""An Airflow DAG for every pipeline that can be read; fencepost_broken_pipelines.py reports the others."""

from fencepost.airflow import build_dags

globals().update(build_dags())
