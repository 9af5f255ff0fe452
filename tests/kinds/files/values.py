"""What the ledger keeps of an output that is a folder of files: a table by its path."""

from __future__ import annotations

from typing import Literal

from fencepost.outputs.table.values import TableOutput, TablePublication


class FilesOutput(TableOutput):
    """A folder of files."""

    kind: Literal["files"] = "files"


class FilesPublication(TablePublication):
    """A file that takes the place of its interval's."""

    kind: Literal["files"] = "files"


PLANNED, PUBLICATION = FilesOutput, FilesPublication
