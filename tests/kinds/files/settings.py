"""The section `output` of a pipeline whose output is a folder of files."""

from __future__ import annotations

from typing import Literal

from fencepost.config.client_config import ClientConfig
from fencepost.config.output_settings import OutputSettings, RecordSettings
from fencepost.config.sections import Lineage


class FilesSettings(OutputSettings):
    """A folder with a file for each interval: its rows, as they were staged."""

    kind: Literal["files"]
    folder: str
    is_compared = True

    @property
    def name(self) -> str:
        """The folder's."""
        return self.folder

    @property
    def description(self) -> str:
        """For a person."""
        return f"folder {self.folder}"

    @property
    def records(self) -> RecordSettings:
        """JSON."""
        return RecordSettings()

    def lineage_name(self, config: ClientConfig, lineage: Lineage) -> tuple[str, str]:
        """As OpenLineage names a local path."""
        return "file", self.folder


SETTINGS = FilesSettings
