#!/usr/bin/env bash
# spark-submit that cannot outlive the process that started it: Airflow's provider kills the JVM on a timeout, and
# nothing at all when the task's own process is killed.
#
# The death signal is set first and the parent looked at second, by a shell that starts in between: a parent that ended
# before the signal was set is seen too. It is kept across exec, so it reaches the JVM that spark-submit becomes.
set -euo pipefail
if [ -n "${PYSPARK_PYTHON:-}" ]; then
    PATH="$(dirname "$PYSPARK_PYTHON"):$PATH" # the spark-submit of the same environment
fi
exec setpriv --pdeathsig TERM bash -c '
    if [ -n "${FENCEPOST_PARENT:-}" ] && [ "$PPID" != "$FENCEPOST_PARENT" ]; then
        echo "the Airflow task that started this job has ended" >&2
        exit 143
    fi
    exec spark-submit "$@"
' spark-submit "$@"
