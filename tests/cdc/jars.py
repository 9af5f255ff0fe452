"""The jars of Kafka Connect, of Debezium's connector for PostgreSQL, and of Apicurio's converter to Avro.

Only these tests use them, and download them when they are missing. `python -m cdc.jars` pins them again (`make pins`).
"""

from __future__ import annotations

import sys
from pathlib import Path

from fencepost.jars import JarsError, JarSet
from fencepost_stack.pins import KAFKA_VERSION, Dependency, Wanted, renew

LOCK = Path(__file__).with_name("jars.lock")
CONNECT, DEBEZIUM, AVRO = (JarSet(name, LOCK) for name in ("connect", "debezium", "connect-avro"))
JAR_SETS = (CONNECT, DEBEZIUM, AVRO)
# The newest converter whose client the registry has. It speaks the second version of Apicurio's interface.
APICURIO = "2.6.13.Final"
APICURIO_CLIENT = "0.1.18.Final"
WANTED = (
    Wanted(
        CONNECT,
        (
            Dependency("org.apache.kafka", "connect-runtime", KAFKA_VERSION),
            Dependency("org.apache.kafka", "connect-json", KAFKA_VERSION),
            Dependency("org.apache.logging.log4j", "log4j-slf4j-impl", "2.25.4"),
        ),
    ),
    Wanted(
        DEBEZIUM,
        (Dependency("io.debezium", "debezium-connector-postgres", "3.3.1.Final", transitive=False, archive="plugin"),),
    ),
    # Each by its name: what Maven would add belongs to the registry's server.
    Wanted(
        AVRO,
        (
            *(
                Dependency("io.apicurio", f"apicurio-registry-{name}", APICURIO, transitive=False)
                for name in (
                    *("utils-converter", "serdes-avro-serde", "serde-common", "schema-resolver"),
                    *("schema-util-common", "client", "common"),
                )
            ),
            *(
                Dependency("io.apicurio", f"apicurio-common-rest-client-{name}", APICURIO_CLIENT, transitive=False)
                for name in ("common", "jdk")
            ),
            Dependency("org.apache.avro", "avro", "1.12.0", transitive=False),
        ),
    ),
)

if __name__ == "__main__":
    try:
        renew(WANTED)
    except JarsError as error:
        sys.exit(f"pins: {error}")
