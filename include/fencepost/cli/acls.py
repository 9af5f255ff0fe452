"""`fencepost acls`: commands that grant a pipeline's user exactly the rights that it needs in Kafka and in its table's
database.
"""

from __future__ import annotations

from typing import Annotated

import typer

from fencepost.cli.arguments import AsJson, PipelineName, pipeline_of
from fencepost.cli.console import err, print_json
from fencepost.config.rights import READER_GROUP, acl_commands, query_grants, rights_of, rights_of_reader
from fencepost.kafka.client_settings import client_settings


def acls(
    pipeline: PipelineName,
    principal: Annotated[str, typer.Option(help="The pipeline's Kafka principal, with its type: User:fencepost.")],
    bootstrap: Annotated[
        str | None, typer.Option(help="Brokers that the commands connect to, host:port. Default: the pipeline's.")
    ] = None,
    command_config: Annotated[
        str | None, typer.Option(help="File with an administrator's login, for kafka-acls.sh. It is not read here.")
    ] = None,
    reader: Annotated[
        bool,
        typer.Option(
            "--reader", help="Grant the rights of a reader instead: output, announcements and the reader's group."
        ),
    ] = False,
    group: Annotated[str, typer.Option(help="The reader's consumer group.")] = READER_GROUP,
    as_json: AsJson = False,
) -> None:
    """Print the kafka-acls.sh commands that grant a pipeline's user the rights it needs, and SQL for its tables.

    With --reader they grant the rights of a reader of the output.

    Changes nothing, and connects to no broker.

    A comment above each group of commands says whether the rights are needed, needed only while topics are missing, or used if
    they are granted. An administrator chooses and runs them. Running them again changes nothing.

    With SCRAM the principal is User: and the user's name. With a client certificate it is User: and the certificate's subject,
    unless the brokers map it (ssl.principal.mapping.rules). With TLS alone it is User:ANONYMOUS, which is everybody.

    SQL is for the user in postgres: of pipeline.yaml, or of a side table there. Each statement is behind `# `, so that a shell
    runs only the other commands.

    Example: fencepost acls orders_hourly --principal User:fencepost --command-config admin.properties | sh
    """
    found = pipeline_of(pipeline)
    settings = client_settings(found)
    rights = rights_of_reader(found, group) if reader else rights_of(found)
    commands = list(acl_commands(rights, principal, bootstrap or settings.bootstrap, command_config))
    granted = [*found.output.grants(found, reader=reader), *(() if reader else query_grants(found))]
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
        listed_commands = [{"use": use.name.lower(), "commands": some} for use, some in commands]
        grants = [{"use": use, "statements": some} for use, some in granted]
        print_json(
            {
                "pipeline": pipeline,
                "principal": principal,
                "rights": listed,
                "commands": listed_commands,
                "grants": grants,
            }
        )
        return
    for use, some in commands:
        typer.echo(f"# {use}")
        for command in some:
            typer.echo(command)
    for wanted, statements in granted:
        typer.echo(f"# {wanted}")
        for statement in statements:
            typer.echo(f"# {statement}")
    if command_config is None and settings.values.get("security.protocol", "plaintext").lower() != "plaintext":
        err.print(
            "The cluster requires a login. Pass an administrator's to kafka-acls.sh with --command-config FILE.",
            markup=False,
            soft_wrap=True,
        )
