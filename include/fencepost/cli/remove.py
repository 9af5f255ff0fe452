"""`fencepost remove`: deletes what trials of a pipeline created in Kafka."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import err, out, print_json
from fencepost.config.loading import load_pipelines
from fencepost.config.pipeline import Pipeline
from fencepost.errors import SettingsError
from fencepost.paths import pipelines_folder


def remove(
    pipeline: PipelineName,
    yes: Annotated[bool, typer.Option("--yes", help="Delete what the command lists without this option.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what trials of a pipeline created in Kafka: its topics and consumer groups, each by its name.

    Without --yes it lists them, and deletes nothing. Stop the pipeline's runs first. The command refuses while any interval of
    the pipeline is published, because readers may use its topics.

    A topic whose name you chose is kept if it ever had a record, or if another pipeline names it. The sources, the folder with
    its reports, schemas in a registry, a table with its bookkeeping, and Airflow's runs are kept too.

    Example: fencepost remove orders_daily
    """
    from fencepost.ledger.deployment import Deployment
    from fencepost.steps.remove import plan_removal
    from fencepost.steps.remove import remove as remove_all

    found = pipeline_of(pipeline)
    deployment = Deployment.of(found)
    removal = plan_removal(deployment, _named_by_others(found))
    kept = removal.kept
    listed = [f"topic {name}" for name in removal.topics] + [f"group {name}" for name in removal.groups]
    if not as_json:
        for name, why in kept.items():
            out.print(f"stays    topic {name}: {why}", markup=False, soft_wrap=True)
    if not yes:
        if not as_json:
            for one in listed:
                out.print(f"delete   {one}", markup=False, soft_wrap=True)
        say = f"fencepost remove {found.name} --yes deletes them" if listed else "there is nothing to delete"
        err.print(f"Nothing is deleted: {say}.", markup=False, soft_wrap=True)
    else:
        for one in remove_all(deployment, removal):
            if not as_json:
                out.print(f"deleted  {one}", markup=False, soft_wrap=True)
    if as_json:
        groups, topics = list(removal.groups), list(removal.topics)
        print_json({"pipeline": found.name, "topics": topics, "groups": groups, "kept": dict(kept), "deleted": yes})


def _named_by_others(own: Pipeline) -> dict[str, str]:
    """Returns the topics that other pipelines in the folder name. Each topic comes with the name of a pipeline that
    names it.

    Raises:
        SettingsError: a pipeline.yaml cannot be read.
    """
    found, (others, bad) = dict[str, str](), load_pipelines()
    if broken := {name: why for name, why in bad.items() if (pipelines_folder() / name / "pipeline.yaml").exists()}:
        raise SettingsError(
            f"the topics that {', '.join(sorted(broken))} may name are not known, so nothing is deleted: "
            f"{next(iter(broken.values()))}"
        )
    for name, other in others.items():
        if name != own.name:
            topics = (*other.source_topics, *other.output.topics, other.staging_topic, other.quarantine_topic)
            found |= dict.fromkeys(topics, name)
    return found
