"""A pipeline's place in a team's Airflow: who owns its DAG, where its tasks run, and which connection has Spark's master."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

DEFAULT_POOL = "fencepost_spark"
DEFAULT_CONNECTION = "spark_default"  # SparkSubmitOperator's own default
Name = Annotated[str, Field(min_length=1, max_length=250)]
Tag = Annotated[str, Field(min_length=1, max_length=100)]


class AirflowSettings(BaseModel):
    """The section `airflow`. It decides nothing about records, so it is in no digest."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    spark_connection: str = Field(default=DEFAULT_CONNECTION, pattern=r"^[\w.-]{1,200}$")
    pool: Name = DEFAULT_POOL  # of the tasks that run Spark jobs
    queue: Name | None = None
    owner: Name = "fencepost"
    tags: tuple[Tag, ...] = ()
