"""``vitascope export``: write a run in another form, and check it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vitascope.commands import fields
from vitascope.commands.result import Result
from vitascope.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained run as one file for other programs, or as a folder for the Hugging Face hub.

    The file says in its metadata how images are prepared (size, mean, std, interpolation, crop) and
    what the classes are. It is read back and must give the logits of the run.

    Examples:
      vitascope export runs/a --to onnx --out a.onnx
      vitascope export runs/a --to safetensors
      vitascope export runs/a --to hub --out a-hub
    """

    run: Annotated[Path, Positional, arg(metavar="RUN", help="Folder of a run or of a comparison.")]
    to: Literal["onnx", "safetensors", "hub"] = "onnx"
    """The format; hub is a folder with weights, config.json and a model card."""
    out: Path | None = None
    """Where to; RUN/export.onnx, RUN/export.safetensors or RUN/hub when left out."""
    json: fields.Json = False
    quiet: fields.Quiet = False


def run(options: Export) -> Result:
    """Write the file, or the folder for the hub."""
    if options.to == "hub":
        return _hub(options)
    from vitascope.deploy.export import export

    done = export(options.run, options.to, options.out or options.run / f"export.{options.to}")
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


def _hub(options: Export) -> Result:
    from vitascope.deploy.hub import HubModel

    out = options.out or options.run / "hub"
    if out.exists() and not out.is_dir():
        raise UserError(f"--out {out} is a file; give a folder for the hub")
    HubModel.of_run(options.run).save_pretrained(out)
    return Result(records={}, summary="", values={"path": str(out)}, written=out)
