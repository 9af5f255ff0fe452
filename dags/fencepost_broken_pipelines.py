"""An Airflow import error that lists the pipelines that cannot be read, when there are any.

It has a file of its own because Airflow stops scheduling every DAG of a file that has an import error.
"""

from fencepost.airflow import refuse_broken_pipelines

refuse_broken_pipelines()
