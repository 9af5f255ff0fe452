"""`fencepost jars`: the jars that Spark's jobs need for Kafka and Avro."""

from __future__ import annotations

from fencepost.cli.console import out, working
from fencepost.jars import ensure_connector
from fencepost.paths import connector_folder


def jars() -> None:
    """Download the jars that Spark's jobs need for Kafka and Avro, and check their SHA-256. Does nothing if they are present.

    Example: fencepost jars
    """
    folder = connector_folder()
    with working(f"downloading to {folder}"):
        downloaded = ensure_connector(folder)
    count = len(list(folder.glob("*.jar")))
    out.print(f"  [green]✓[/] {count} jars in {folder}{'' if downloaded else ', there already'}", soft_wrap=True)
