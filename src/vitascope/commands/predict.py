"""``vitascope predict``: the most probable classes of image files, as lines or a CSV file."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import Positional, arg

from vitascope import option_types
from vitascope.commands.result import Result
from vitascope.errors import UserError
from vitascope.progress import Progress
from vitascope.settings import Count
from vitascope.threads import use_threads


@dataclass(frozen=True, kw_only=True)
class Predict:
    """Classify image files with a trained run.

    Writes one line per file: file,label,probability, then the next of --top. Files that cannot be
    read are named and left out.

    Examples:
      vitascope predict runs/a new/ --out answers.csv
      vitascope predict runs/a one.jpg two.jpg --top 3
      vitascope predict runs/a new/ --temperature robust/calibration.json --out answers.csv
    """

    run: Annotated[Path, Positional, arg(metavar="RUN", help="Folder of a run or of a comparison.")]
    files: Annotated[
        tuple[Path, ...], Positional, arg(metavar="FILES", help="Images, or folders of images.")
    ]
    out: Path | None = None
    """Write the answers to this file; printed when left out."""
    top: Count = 1
    """How many classes to give for each file, the most probable first."""
    temperature: str | None = None
    """Divide the logits by it: a number, or the calibration.json of `vitascope evaluate RUN --on
    calibration --out FOLDER`."""
    batch_size: Count = 64
    """Images at a time."""
    device: option_types.Device = None
    threads: option_types.Threads = None
    json: option_types.Json = False
    quiet: option_types.Quiet = False


def run(options: Predict) -> Result:
    """Classify the files; those that cannot be read are named and left out."""
    if options.run.is_dir():
        from vitascope.training.run_folder.run import finished_folder

        finished_folder(options.run)  # before torch is loaded
    use_threads(options.threads)
    from vitascope.deploy.prediction import (
        answers_table,
        image_files,
        predict,
        temperature_of,
        write_answers,
    )

    if not options.files:
        raise UserError("give images, or folders of images, after the run")
    if options.out is not None and options.out.is_dir():
        raise UserError(f"--out {options.out} is a folder; give a file such as answers.csv")
    files = image_files(options.files)
    temperature = 1.0 if options.temperature is None else temperature_of(options.temperature)
    broken: dict[Path, str] = {}
    quiet = options.quiet or options.json
    with Progress("predicting", len(files), unit="img", quiet=quiet) as bar:
        predictions = predict(
            options.run,
            files,
            top=options.top,
            batch_size=options.batch_size,
            device=options.device,
            temperature=temperature,
            on_broken=lambda file, error: broken.__setitem__(file, str(error)),
            on_step=lambda done: bar.show("", done, len(files)),
        )
    if not predictions:
        raise UserError(f"none of {len(files)} files can be read; of the first: {broken[files[0]]}")
    if options.out is not None:
        write_answers(options.out, predictions)
    num_read = len(files) - len(broken)
    return Result(
        records={},
        summary=answers_table(predictions).rstrip() if options.out is None else f"{num_read} files",
        values={
            "answers": [
                {"file": str(each.file), "label": each.label, "probability": each.probability}
                for each in predictions
            ],
            "temperature": temperature,
            "left_out": {str(file): why for file, why in broken.items()},
        },
        notes=tuple(f"left out: {why}" for why in broken.values()),
        written=options.out,
    )
