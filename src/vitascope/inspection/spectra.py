"""Hessian spectra of several runs compared: whose loss is less convex, and whose is sharper?

Park & Kim 2022 (https://arxiv.org/abs/2202.06709), Fig. 1c and 4: early in training a ViT has more
negative eigenvalues than a ResNet, and fewer with average pooling in place of the class token or
with locality; a ResNet's positive ones are larger. NEP and APE are taken over mini-batches, here
with the standard error that the mini-batches give. For a difference to the first run they are
resampled, the same ones in both (`vitascope.stats`): it counts when its 95 % interval
leaves out zero, and is undecided otherwise. This holds for these runs: another seed may differ.
Every run is measured on mini-batches that its own recipe augments.

`vitascope study spectra RUN RUN ... --epochs 1` takes about a minute per run of the micro models.
"""

from collections.abc import Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from vitascope.errors import UserError
from vitascope.inspection.inspect import inspect_subject
from vitascope.inspection.options import InspectOptions, SpectraOptions
from vitascope.measure.curvature.spectrum import negative_share, positive_mean
from vitascope.progress import OnStep
from vitascope.record import Record
from vitascope.stats import contrast_of_batches
from vitascope.training import load_run

_KEPT = (  # settings of the Hessian that the answer keeps
    "batches",
    "batch_size",
    "num_eigenvalues",
    "weight_decay",
    "tolerance",
    "dtype",
    "batch_norm",
    "augmented_by",
)


def mean_error(values: np.ndarray) -> tuple[float, float | None]:
    """Mean and standard error of what the mini-batches gave; None for a single one."""
    error = float(values.std(ddof=1) / np.sqrt(len(values))) if len(values) > 1 else None
    return float(values.mean()), error


def numbers(eigenvalues: np.ndarray) -> dict[str, Any]:
    """NEP and APE of (b, k) eigenvalues, with standard errors over mini-batches.

    APE is the mean of all positive eigenvalues; its error is that of the mini-batches' own means.

    >>> numbers(np.array([[1.0, -1.0], [3.0, 2.0]]))["nep"]
    (0.25, 0.25)
    """
    per_batch = [row[row > 0].mean() for row in eigenvalues if (row > 0).any()]
    ape: tuple[float | None, float | None] = (None, None)
    if per_batch:
        ape = positive_mean(eigenvalues), mean_error(np.array(per_batch))[1]
    return {"nep": mean_error((eigenvalues < 0).mean(axis=1)), "ape": ape}


STATISTICS = {"nep": negative_share, "ape": positive_mean}


def compared(mine: np.ndarray, first: np.ndarray, what: str) -> dict[str, Any]:
    """Return how far a run's NEP or APE is above the first run's, of (b, k) eigenvalues each.

    >>> convex, bent = np.full((8, 2), 1.0), np.tile([[1.0, -1.0], [-2.0, -1.0]], (4, 1))
    >>> compared(bent, convex, "nep")["verdict"]
    'more'
    """
    both = len(mine) == len(first) > 1
    cells = [mine[None], first[None]]
    contrast = contrast_of_batches(cells, (1.0, -1.0), STATISTICS[what]) if both else None
    if contrast is None:
        return {"verdict": "unknown"}
    verdict = "more" if contrast.low > 0 else "less" if contrast.high < 0 else "undecided"
    return {
        "verdict": verdict,
        "change": contrast.value,
        "low": contrast.low,
        "high": contrast.high,
    }


def spectra(options: SpectraOptions, on_step: OnStep) -> Record:
    """Measure every run at every epoch, write ``OUT/spectra.json``, and return it.

    Finished mini-batches are kept in ``OUT`` and not measured again.

    Args:
        options: Which runs, and how the Hessian is measured.
        on_step: Told of progress.
    """
    runs, out = options.runs, options.out
    names = [Path(run).name for run in runs]
    if not runs or len(set(names)) != len(names):
        raise UserError(f"give runs with different folder names, not {', '.join(names) or 'none'}")
    for run in runs:
        load_run(run)  # a folder that holds none is an error
    started = perf_counter()
    rows: list[dict[str, Any]] = []
    arrays: dict[str, np.ndarray] = {}
    config: Mapping[str, Any] = {}
    for epoch in options.epochs or (None,):
        for run, name in zip(runs, names, strict=True):
            home = out / (name if epoch is None else f"{name}-epoch-{epoch}")
            asked = InspectOptions(
                model=run,
                measures=("hessian",),
                epoch=epoch,
                images=4,
                seed=options.seed,
                batches=options.batches,
                eigenvalues=options.eigenvalues,
                tolerance=options.tolerance,
                batch_norm=options.batch_norm,
                processes=options.processes,
            )
            inspection = inspect_subject(asked, on_step, parts=home / "parts")
            spectrum = inspection.records["hessian"]
            spectrum.save(home / "hessian")
            values, config = spectrum.arrays["eigenvalues"], spectrum.config
            arrays[home.name] = values
            row = {"run": name, "epoch": epoch, "name": home.name, **numbers(values)}
            row["loss"] = mean_error(spectrum.arrays["loss"])
            row["unconverged"] = spectrum.values["num_unconverged"]
            rows.append(row)
    for row in rows:
        first = next(r for r in rows if r["epoch"] == row["epoch"])
        for what in ("nep", "ape"):
            pair = arrays[row["name"]], arrays[first["name"]]
            against = {"verdict": ""} if row is first else compared(*pair, what)
            row |= {f"{what}_{name}": value for name, value in against.items()}
    answer = Record(
        kind="spectra",
        values={"rows": rows, "reference": names[0]},
        arrays=arrays,
        seed=options.seed,
        config={"runs": names, **{key: config[key] for key in _KEPT if key in config}},
        seconds=perf_counter() - started,
    )
    answer.save(out / "spectra")
    return answer
