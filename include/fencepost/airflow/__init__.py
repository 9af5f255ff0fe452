"""Connects Fencepost to Airflow. This package imports neither Spark nor Great Expectations.

Files in `dags/` call `build_dags` and `refuse_broken_pipelines`. Set-up calls `ensure_pools`, or `python -m fencepost.airflow`,
once Airflow's database exists.
"""

from fencepost.airflow.assets import output_asset
from fencepost.airflow.connections import with_connections
from fencepost.airflow.dag import build_dag, build_dags, refuse_broken_pipelines
from fencepost.airflow.operators import PlanOperator
from fencepost.airflow.pools import SPARK_POOL, ensure_pools
from fencepost.airflow.spark_operator import AdvanceOperator, FencepostSparkOperator

__all__ = [
    "SPARK_POOL",
    "AdvanceOperator",
    "FencepostSparkOperator",
    "PlanOperator",
    "build_dag",
    "build_dags",
    "ensure_pools",
    "output_asset",
    "refuse_broken_pipelines",
    "with_connections",
]
