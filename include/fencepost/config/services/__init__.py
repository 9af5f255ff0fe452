"""The services that a pipeline or a reader connects to. Each module declares one service, and all code that handles
settings reads `SERVICES`.
"""

from fencepost.config.services.iceberg import ICEBERG
from fencepost.config.services.kafka import KAFKA
from fencepost.config.services.postgres import POSTGRES
from fencepost.config.services.schema_registry import SCHEMA_REGISTRY

SERVICES = {service.name: service for service in (KAFKA, SCHEMA_REGISTRY, POSTGRES, ICEBERG)}
