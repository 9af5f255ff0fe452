"""`fencepost run --json` for several pipelines in one process: each as on the command line, but Spark is started once.

Arguments: start, end, then names. A line of JSON each on standard output; a line with the name before each on stderr.
"""

import contextlib
import io
import json
import sys
from collections.abc import Callable, Iterator

from fencepost.cli import run
from fencepost.cli.app import main
from fencepost.config.pipeline import Pipeline
from fencepost.spark.session import build_session


@contextlib.contextmanager
def one_session(pipeline: Pipeline, records: int | None = None) -> Iterator[Callable[[], object]]:
    """In place of the command line's own, which stops the session after every run."""
    yield lambda: build_session(pipeline, "run")


run.spark_session = one_session
start, end, *names = sys.argv[1:]
for name in names:
    sys.stderr.write(f"==== {name}\n")
    sys.stderr.flush()
    sys.argv = ["fencepost", "run", name, "--start", start, "--end", end, "--json"]
    out = io.StringIO()
    code = 0
    try:
        with contextlib.redirect_stdout(out):
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    sys.stdout.write(json.dumps({"name": name, "exit_code": code, "stdout": out.getvalue()}) + "\n")
    sys.stdout.flush()
