"""Answer ``vitascope predict``: the likeliest classes of image files, as lines or a CSV file."""

from pathlib import Path

from vitascope.answers.result import Result
from vitascope.errors import UserError
from vitascope.progress import Progress
from vitascope.requests.predict import Predict
from vitascope.threads import use_threads


def run_predict(request: Predict) -> Result:
    """Classify the files; those that cannot be read are named and left out."""
    use_threads(request.threads)
    from vitascope.deploy.prediction import (
        answers_table,
        image_files,
        predict,
        temperature_of,
        write_answers,
    )

    if not request.files:
        raise UserError("give images, or folders of images, after the run")
    if request.out is not None and request.out.is_dir():
        raise UserError(f"--out {request.out} is a folder; give a file such as answers.csv")
    files = image_files(request.files)
    temperature = 1.0 if request.temperature is None else temperature_of(request.temperature)
    broken: dict[Path, str] = {}
    quiet = request.quiet or request.json
    with Progress("predicting", len(files), unit="img", quiet=quiet) as bar:
        found = predict(
            request.run,
            files,
            top=request.top,
            batch_size=request.batch_size,
            device=request.device,
            temperature=temperature,
            on_broken=lambda file, error: broken.__setitem__(file, str(error)),
            on_step=lambda done: bar.show("", done, len(files)),
        )
    if not found:
        raise UserError(f"none of {len(files)} files can be read; of the first: {broken[files[0]]}")
    if request.out is not None:
        write_answers(request.out, found)
    told = len(files) - len(broken)
    return Result(
        records={},
        summary=answers_table(found).rstrip() if request.out is None else f"{told} files",
        values={
            "answers": [
                {"file": str(each.file), "label": each.label, "probability": each.probability}
                for each in found
            ],
            "temperature": temperature,
            "left_out": {str(file): why for file, why in broken.items()},
        },
        notes=tuple(f"left out: {why}" for why in broken.values()),
        written=request.out,
    )
