"""`fencepost pipelines`: lists the pipelines, and the errors of those that cannot be loaded."""

from __future__ import annotations

import typer

from fencepost.cli.arguments import AsJson
from fencepost.cli.console import err, out, print_json
from fencepost.cli.extensions import use_environment
from fencepost.config.loading import load_pipelines
from fencepost.errors import SettingsError
from fencepost.model import utc_now
from fencepost.paths import pipelines_folder


def pipelines(as_json: AsJson = False) -> None:
    """List the pipelines, and the errors of those that cannot be loaded. Executes each transform.py.

    It does not check a transform.sql, nor whether the columns of a suite exist: only a run can. Exit code 2: a pipeline cannot be
    loaded.

    Example: fencepost pipelines --json
    """
    from fencepost.config.intervals import schedule_warnings
    from fencepost.doctor.folder import check_pipeline

    use_environment()
    good, bad = load_pipelines()
    for name, pipeline in list(good.items()):
        try:
            check_pipeline(pipeline)
        except SettingsError as found:
            bad[name] = found
            del good[name]
    warnings = {n: [one.text for one in schedule_warnings(p.schedule, utc_now())] for n, p in good.items()}
    if as_json:
        listed = [
            {"name": n, "sources": [*p.source_topics], "output": p.output.name, "warnings": warnings[n]}
            for n, p in good.items()
        ]
        print_json(
            {"folder": str(pipelines_folder()), "pipelines": listed, "broken": {n: str(e) for n, e in bad.items()}}
        )
    else:
        for name, pipeline in good.items():
            out.print(
                f"{name:24} {', '.join(pipeline.source_topics)} → {pipeline.output.name}   {pipeline.description}",
                markup=False,
                soft_wrap=True,
            )
        for name, texts in warnings.items():
            for text in texts:
                err.print(f"{name}: {text}", style="yellow", markup=False, soft_wrap=True)
    for _, error in sorted(bad.items()):
        err.print(str(error), style="red", markup=False, soft_wrap=True)
    if bad:
        raise typer.Exit(SettingsError.exit_code)
