"""A Kafka user for each pipeline, with only the rights that the pipeline needs."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from confluent_kafka.admin._acl import AclBinding, AclOperation, AclPermissionType
from confluent_kafka.admin._resource import ResourcePatternType, ResourceType

from fencepost.config.loading import load_pipeline
from fencepost.config.pipeline import Pipeline
from fencepost.config.rights import Resource, Right, rights_of
from fencepost.errors import SettingsError
from fencepost_stack.secured_kafka import SecuredKafka

TYPES = {
    Resource.TOPIC: ResourceType.TOPIC,
    Resource.GROUP: ResourceType.GROUP,
    Resource.TRANSACTIONAL_ID: ResourceType.TRANSACTIONAL_ID,
    Resource.CLUSTER: ResourceType.BROKER,
}

log = logging.getLogger("fencepost_stack.pipeline_users")


def names_of(pipelines: Path) -> list[str]:
    """Returns the pipelines of a folder, by name. The settings of a pipeline may be wrong."""
    return sorted(file.parent.name for file in pipelines.glob("[!._]*/pipeline.yaml"))


def password_variable(pipeline: str) -> str:
    """Returns the variable with a pipeline's password for Kafka, such as KAFKA_PASSWORD_NYC_FLIGHTS."""
    return "KAFKA_PASSWORD_" + re.sub(r"[^A-Za-z0-9]", "_", pipeline).upper()


def let_in(kafka: SecuredKafka, pipelines: Path, passwords: Mapping[str, str]) -> None:
    """Creates the users of these pipelines, and gives them their rights. Existing users and rights stay.

    A pipeline whose settings are wrong gets a user without rights. Such a pipeline has no DAG either.
    """
    kafka.ensure_users(passwords)
    bindings: list[AclBinding] = []
    for name in passwords:
        try:
            bindings += bindings_of(load_pipeline(pipelines / name))
        except SettingsError as error:
            log.warning("pipeline %s gets no rights in Kafka: %s", name, str(error))
    kafka.ensure_rights(bindings)


def bindings_of(pipeline: Pipeline) -> Iterator[AclBinding]:
    """Yields the ACLs of a pipeline's user, whose name is the pipeline's."""
    return (binding_of(right, pipeline.name) for right in rights_of(pipeline))


def binding_of(right: Right, user: str) -> AclBinding:
    """Returns the ACL that gives a user this right."""
    pattern = ResourcePatternType.PREFIXED if right.is_prefix else ResourcePatternType.LITERAL
    operation = AclOperation[re.sub(r"(?<!^)(?=[A-Z])", "_", right.operation).upper()]
    allow = AclPermissionType.ALLOW
    return AclBinding(TYPES[right.resource], right.name, pattern, f"User:{user}", "*", operation, allow)
