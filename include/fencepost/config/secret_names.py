"""The names that mark a setting or an environment variable as a secret."""

from __future__ import annotations

import re

SECRET_KEYS = re.compile(r"password|secret|\.key$|\.pem$|token|jaas|access.?key", re.IGNORECASE)
# Names of environment variables. Airflow's own variables hold its keys, and URLs with passwords.
SECRET_NAMES = re.compile(
    r"PASS|PWD|SECRET|TOKEN|KEY|CREDENTIAL|JAAS|(_|^)DSN(_|$)|_CONN(_|$)|^AIRFLOW__|^AIRFLOW_(CONN|VAR)_", re.IGNORECASE
)
# Airflow's own settings, connections and variables. No pipeline gets their secrets by these names.
OF_AIRFLOW = re.compile(r"AIRFLOW(__|_CONN_|_VAR_)", re.IGNORECASE)

URL_WITH_PASSWORD = re.compile(r"://[^/\s@]*:[^/\s]*@")
# Names of Spark's settings, and of those that it passes on: spark.hadoop.fs.s3a.secret.key, spark.ssl.keyPassword, a
# catalog's token.
SECRET_SETTINGS = re.compile(
    r"passw(or)?d|passphrase|pwd|secret|token|credential|jaas|authorization|(api|access|account).?key|[._-]keys?(\.|$)|\.pem$",
    re.IGNORECASE,
)
# A name with this ending or part describes a secret but is not one: where it is, how long it is.
TELLS_OF_ONE = re.compile(
    r"(file|path|location|uri|url|endpoint|providers?|class|impl|regex|mechanism|algorithm|type|mode|enabled|length|bits|name|id|ms"
    r"|seconds|interval|ratio|itemkey)$|\.secrets\.|secretkeyref\.|pullsecrets$",
    re.IGNORECASE,
)
OF_PROCESS = re.compile(
    r"spark\..*env\.(?P<name>\w+)", re.IGNORECASE
)  # spark.executorEnv.NAME, spark.yarn.appMasterEnv.NAME
# Values: an option of a JVM or of a URL, or a key in PEM.
SECRET_TEXT = re.compile(
    r"(passw(or)?d|passphrase|pwd|secret|token|(api|access|account|secret)[._-]?key|\bsig)\s*=\s*[^\s&;]"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY",
    re.IGNORECASE,
)
# The reason why a setting is refused beside a connection.
NOT_BESIDE = (
    "cannot be set beside connection, because it decides which server gets the connection's secret. Set it in the "
    "connection, or leave connection out"
)
HARMLESS = re.compile(r"|true|false|\$\{[^}]*\}", re.IGNORECASE)  # ${env.NAME}: Hadoop itself reads the environment


def looks_secret(name: str, value: str) -> bool:
    """Returns whether the value of a Spark setting seems to be a secret, or to contain one."""
    if HARMLESS.fullmatch(value):
        return False
    if URL_WITH_PASSWORD.search(value) or SECRET_TEXT.search(value):
        return True
    variable = OF_PROCESS.fullmatch(name)
    found = SECRET_NAMES.search(variable["name"]) if variable else SECRET_SETTINGS.search(name)
    return found is not None and TELLS_OF_ONE.search(name) is None
