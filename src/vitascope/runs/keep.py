"""Copy what is worth keeping of finished runs: numbers, not weights.

Of every finished run its config, metrics, predictions, record and readings; of the folder its
records. Weights and checkpoints, nearly all of the size, stay behind. Studies are answered from
the copy as from the folder, as long as they ask for nothing that must be read off the weights anew.
"""

import shutil
from pathlib import Path

from vitascope.errors import UserError

_OF_A_RUN = ("config.yaml", "metrics.jsonl", "predictions.safetensors", "record.json")
_RECORDS = ("*.json", "*.safetensors")


def keep(out: Path, target: Path) -> int:
    """Copy from ``out``, the folder of studies or comparisons, into ``target``; bytes copied.

    What is there already is replaced, what is there besides stays.

    Raises:
        UserError: If there is no finished run, or one folder lies in the other.
    """
    out, target = Path(out), Path(target)
    here, there = out.resolve(), target.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise UserError(
            f"{target} and {out} lie in each other; give a folder of its own to keep in"
        )
    runs = sorted(path.parent for path in out.glob("runs/*/seed-*/record.json"))
    if not runs:
        raise UserError(f"{out} has no finished run to keep")
    files = [path for pattern in _RECORDS for path in out.glob(pattern)]
    for run in runs:
        files += [run / name for name in _OF_A_RUN if (run / name).is_file()]
        files += [run / "record.safetensors"] if (run / "record.safetensors").is_file() else []
        files += [path for pattern in _RECORDS for path in run.glob(f"readings/{pattern}")]
    for path in files:
        copy = target / path.relative_to(out)
        copy.parent.mkdir(parents=True, exist_ok=True)
        part = copy.with_name(f".writing-{copy.name}")
        shutil.copyfile(path, part)
        part.replace(copy)
    return sum(path.stat().st_size for path in files)
