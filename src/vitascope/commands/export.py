"""``vitascope export``: write a run in another form, and check it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from vitascope import option_types
from vitascope.commands.result import Result
from vitascope.errors import UserError


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write a trained model as one file for other programs, or a run as a Hugging Face folder.

    The file says in its metadata how images are prepared (size, mean, std, interpolation, crop) and
    what the classes are. It is read back and must give the same logits.

    Examples:
      vitascope export runs/a --to onnx --out a.onnx
      vitascope export runs/a --to safetensors
      vitascope export runs/a --to hub --out a-hub
      vitascope export tf_efficientnet_lite0@efficientnet-lite0.pth --by-order --to safetensors \\
          --out lite0.safetensors
    """

    run: Annotated[
        Path,
        Positional,
        arg(metavar="RUN", help="Folder of a run or of a comparison; or NAME@FILE."),
    ]
    to: Literal["onnx", "safetensors", "hub"] = "onnx"
    """The format; hub is a folder with weights, config.json and a model card."""
    out: Path | None = None
    """Where to; RUN/export.onnx, RUN/export.safetensors or RUN/hub when left out."""
    by_order: bool = False
    """NAME@FILE: the tensors of the file have other names than those of NAME, and stand in the same
    order."""
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: Export) -> Result:
    """Write the file, or the folder for the hub."""
    if options.run.is_dir():
        from vitascope.training.run_folder.run import finished_folder

        finished_folder(options.run)  # before torch is loaded
    if options.to == "hub":
        return _hub(options)
    from vitascope.deploy.export import export

    ending = "" if options.out is None else options.out.suffix.lstrip(".").lower()
    if ending in ("onnx", "safetensors") and ending != options.to:
        raise UserError(f"--out {options.out} is named like {ending}; add --to {ending}")
    if options.out is None and not options.run.is_dir():
        raise UserError(f"{options.run} is no folder to write to; give --out")
    out = options.out or options.run / f"export.{options.to}"
    done = export(options.run, options.to, out, by_order=options.by_order)
    size = done.path.stat().st_size / 1e6
    return Result(
        records={},
        summary=f"{size:.1f} MB; logits differ by {done.difference:.1e} at most",
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
