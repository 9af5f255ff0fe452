"""What the ledger keeps of an output that is a folder of files: a table whose name is its path."""

from __future__ import annotations

from typing import Literal

from fencepost.outputs.table.values import TableOutput, TablePublication


class FilesOutput(TableOutput):
    """A folder of files."""

    kind: Literal["files"] = "files"

    @property
    def description(self) -> str:
        """`folder PATH`, for messages."""
        return f"folder {self.table}"


class FilesPublication(TablePublication):
    """A file that takes the place of its interval's."""

    kind: Literal["files"] = "files"

    @property
    def method(self) -> str:
        """For the batch's history."""
        return f"as one file of folder {self.table}"

    @property
    def target(self) -> str:
        """What accepts or refuses the batch."""
        return f"folder {self.table}"


PLANNED, PUBLICATION = FilesOutput, FilesPublication
