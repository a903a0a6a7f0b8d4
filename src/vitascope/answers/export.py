"""Answer ``vitascope export``: write a run in another form, and check it."""

from vitascope.answers.result import Result
from vitascope.errors import UserError
from vitascope.requests.export import Export


def run_export(request: Export) -> Result:
    """Write the file, or the folder for the hub."""
    if request.to == "hub":
        return _hub(request)
    from vitascope.deploy.export import export

    done = export(request.run, request.to, request.out or request.run / f"export.{request.to}")
    size = done.path.stat().st_size / 1e6
    return Result(
        records={},
        summary=f"{size:.1f} MB; logits differ from the run's by {done.difference:.1e} at most",
        values={
            "path": str(done.path),
            "difference": done.difference,
            "preprocessing": done.preprocessing,
        },
        written=done.path,
    )


def _hub(request: Export) -> Result:
    from vitascope.deploy.hub import HubModel

    out = request.out or request.run / "hub"
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; give a folder for the hub")
    HubModel.of_run(request.run).save_pretrained(out)
    return Result(records={}, summary="", values={"path": str(out)}, written=out)
