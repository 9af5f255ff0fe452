"""`fencepost acls`: what grants a pipeline's user what it needs in Kafka, and in its table's store, and nothing else."""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import err, print_json
from fencepost.config.rights import READER_GROUP, acl_commands, rights_of, rights_of_reader
from fencepost.kafka.client_settings import client_settings


def acls(
    pipeline: PipelineName,
    principal: Annotated[
        str, typer.Option(help="Whom the brokers take the pipeline for, with its type: User:fencepost.")
    ],
    bootstrap: Annotated[
        str | None, typer.Option(help="Brokers for the commands, host:port; without it the pipeline's own.")
    ] = None,
    command_config: Annotated[
        str | None, typer.Option(help="File with an administrator's login, for kafka-acls.sh. It is not read here.")
    ] = None,
    reader: Annotated[
        bool,
        typer.Option("--reader", help="For a reader of the output: output, announcements and its group, nothing else."),
    ] = False,
    group: Annotated[str, typer.Option(help="The reader's consumer group.")] = READER_GROUP,
    as_json: AsJson = False,
) -> None:
    """Print the kafka-acls.sh commands that grant a pipeline's user what it needs, and SQL where its output is a table.

    With --reader they grant a reader of the output what it needs.

    Changes nothing, and asks no broker.

    Commands come in groups, each under a comment: what is needed; what is needed only while topics are missing; what is used
    if it is granted. An administrator runs those that are wanted. Running them again changes nothing.

    With SCRAM the principal is User: and the user's name. With a client certificate it is User: and the certificate's subject,
    unless the brokers map it (ssl.principal.mapping.rules). With TLS alone it is User:ANONYMOUS: everybody.

    SQL is for the user in postgres: of pipeline.yaml, each statement behind `# `, so that a shell runs the other commands only.

    Example: fencepost acls orders_hourly --principal User:fencepost --command-config admin.properties | sh
    """
    found = pipeline_of(pipeline)
    settings = client_settings(found)
    rights = rights_of_reader(found, group) if reader else rights_of(found)
    commands = list(acl_commands(rights, principal, bootstrap or settings.bootstrap, command_config))
    if as_json:
        listed = [
            {
                "resource": right.resource,
                "name": right.name,
                "pattern": "prefixed" if right.is_prefix else "literal",
                "operation": right.operation,
                "use": right.use.name.lower(),
                "why": right.why,
            }
            for right in rights
        ]
        told = [{"use": use.name.lower(), "commands": some} for use, some in commands]
        sql = [{"use": use, "statements": some} for use, some in found.output.grants(found, reader=reader)]
        print_json({"pipeline": pipeline, "principal": principal, "rights": listed, "commands": told, "sql": sql})
        return
    for use, some in commands:
        typer.echo(f"# {use}")
        for command in some:
            typer.echo(command)
    for wanted, statements in found.output.grants(found, reader=reader):
        typer.echo(f"# SQL, {wanted}")
        for statement in statements:
            typer.echo(f"# {statement}")
    if command_config is None and settings.values.get("security.protocol", "plaintext").lower() != "plaintext":
        err.print(
            "The cluster asks for a login: give kafka-acls.sh an administrator's with --command-config FILE.",
            markup=False,
            soft_wrap=True,
        )
