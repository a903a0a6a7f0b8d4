"""Vitascope from Python: the command line's words as keyword arguments, a result to keep.

    >>> from vitascope import api
    >>> words = {"data": "digits", "measures": ["gates"], "images": 8, "quiet": True}
    >>> found = api.inspect("convit_micro", **words)
    >>> print(str(found).splitlines()[1].split()[:4])
    ['gates', 'share', 'of', 'position,']

Every function makes a request (:mod:`vitascope.requests`), as the command line does from what is
typed, and answers it here, so both give the same records. ``vitascope.compare``, ``inspect``,
``evaluate``, ``study``, ``predict`` and ``load`` are these functions. Torch is loaded when one is
called.
"""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from vitascope.errors import UserError
from vitascope.progress import Progress
from vitascope.requests.buildup import Buildup
from vitascope.requests.compare import Compare
from vitascope.requests.evaluate import Evaluate
from vitascope.requests.from_python import from_python, typed_line
from vitascope.requests.inspect import Inspect
from vitascope.requests.spectra import Spectra
from vitascope.requests.study import Study
from vitascope.settings import recorded_as
from vitascope.threads import use_threads

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from PIL import Image
    from torch import Tensor, nn

    from vitascope.record import Record

__all__ = [
    "Loaded",
    "Prediction",
    "Result",
    "compare",
    "evaluate",
    "inspect",
    "load",
    "predict",
    "study",
]

FORMATS = ("png", "svg")  # of figures that are saved beside records


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a command found: prints as its table, draws figures, saves records and a page."""

    records: Mapping[str, "Record"]  # by the name of their file
    summary: str  # what a terminal shows
    values: Any  # what --json prints
    notes: tuple[str, ...] = ()  # what a reader must know
    written: Path | None = None  # where the page or figure is, if it was written

    def __str__(self) -> str:
        return self.summary

    @property
    def record(self) -> "Record":
        """The first record."""
        return next(iter(self.records.values()))

    def figures(self) -> dict[str, "Figure"]:
        """The page's figures for a paper, by name, drawn by matplotlib."""
        from vitascope.report.exports import drawings

        return dict(drawings(self._report())) if self._shown else {}

    def save(self, folder: str | Path, formats: Sequence[str] = FORMATS) -> Path:
        """Write records, ``figures/`` and ``report.html``; return where the page is."""
        from vitascope.report.exports import write_figures
        from vitascope.report.folder_page import write_folder_page

        folder = Path(folder)
        for name, record in self.records.items():
            record.save(folder / name)
        if not self._shown:
            return folder
        write_figures(self._report(), folder, formats)
        return write_folder_page(folder)

    def _repr_html_(self) -> str:
        """The page, in a frame of a notebook."""
        if not self._shown:
            return f"<pre>{escape(self.summary)}</pre>"
        from vitascope.report.page import render_page

        page = escape(render_page(self._report()), quote=True)
        return f'<iframe srcdoc="{page}" width="100%" height="700" frameborder="0"></iframe>'

    @property
    def _shown(self) -> bool:
        """Whether there is anything that a page shows."""
        from vitascope.report.contents import KINDS

        return any(record.kind in KINDS for record in self.records.values())

    def _report(self) -> Any:
        from vitascope.report.contents import compose
        from vitascope.report.records import Found, Source

        sources = [
            Source(path=Path(f"{name}.json"), record=record)
            for name, record in self.records.items()
        ]
        return compose(Found(sources=tuple(sources)))


def compare(**words: Any) -> Result:
    """Which model suits these images? The arguments are the options of ``vitascope compare``."""
    return _answered(run_compare, Compare, "compare", words)


def inspect(model: str | Path, **words: Any) -> Result:
    """Look inside a model. The arguments are the options of ``vitascope inspect``."""
    return _answered(run_inspect, Inspect, "inspect", {"model": str(model), **words})


def evaluate(model: str | Path, **words: Any) -> Result:
    """How good is a model? The arguments are the options of ``vitascope evaluate``."""
    return _answered(run_evaluate, Evaluate, "evaluate", {"model": str(model), **words})


def study(name: str, **words: Any) -> Result:
    """Answer a question of a paper. The arguments are the options of ``vitascope study NAME``."""
    if name == "buildup":
        return _answered(run_buildup, Buildup, f"study {name}", words)
    if name == "spectra":
        return _answered(run_spectra, Spectra, f"study {name}", words)
    return _answered(partial(_study_with_page, name), Study, f"study {name}", words)


def _answered(
    run: Callable[[Any], Result], kind: type[Any], command: str, words: Mapping[str, Any]
) -> Result:
    """Make the request and answer it; records keep the command that asks for the same."""
    request = from_python(kind, words)
    with recorded_as(typed_line(command, request)):
        return run(request)


def run_inspect(request: Inspect) -> Result:
    """Look inside a model, or list its units."""
    use_threads(request.threads)
    from vitascope.studies.inspection.inspect import inspect_subject, list_units

    asked = _inspect_request(request)
    if request.list:
        return _units(list_units(asked), request)
    with Progress("inspecting", quiet=request.quiet or request.json) as bar:
        found = inspect_subject(asked, bar.show)
    from vitascope.report.instruments.robustness_readings import READINGS
    from vitascope.report.instruments.summary import left_out, summary_table
    from vitascope.report.tables.writers import as_text

    read = [
        f"{record.kind}: {READINGS[record.kind](record)}"
        for record in found.records.values()
        if record.kind in READINGS
    ]
    refused = [f"not {name}: {why}" for name, why in found.refused.items()]
    explorer = {} if found.explorer is None else {"explorer": found.explorer}
    measured = {name: dict(record.values) for name, record in found.records.items()}
    table = [as_text(summary_table(found.records))] if found.records else []
    result = Result(
        records={**found.records, **explorer},
        summary="\n".join([*table, *read, *refused]),
        values={
            "subject": found.subject,
            "measures": measured,
            "refused": dict(found.refused),
            "notes": list(found.notes),
        },
        notes=(*left_out(found.records), *(f"note: {note}" for note in found.notes)),
    )
    return result if request.out is None else replace(result, written=result.save(request.out))


def _inspect_request(request: Inspect) -> Any:
    """The question to the instruments."""
    from vitascope.studies.inspection.curvature import Curvature
    from vitascope.studies.inspection.inspect import InspectRequest
    from vitascope.studies.session.models import class_pairs

    same = (
        *("data", "layers", "units", "batch_size", "image_size", "epoch", "other", "query", "grid"),
        *("pretrained", "seed", "device"),
    )
    curved = (
        *("tolerance", "points", "directions", "along", "weight_decay", "batch_norm", "double"),
        *("recipe", "processes"),
    )
    return InspectRequest(
        subject=request.model,
        measures=tuple(name for word in request.measures for name in word.split(",") if name),
        num_images=request.images,
        map_classes=class_pairs(request.map_classes),
        num_prefix_tokens=request.prefix_tokens,
        explorer=request.out is not None,
        curvature=Curvature(
            num_batches=request.batches,
            num_eigenvalues=request.eigenvalues,
            parts=None if request.out is None else request.out / "parts",
            **_fields(request, curved),
        ),
        **_fields(request, same),
    )


def _units(found: "Record", request: Inspect) -> Result:
    from vitascope.report.tables.models import units_table
    from vitascope.report.tables.writers import as_text

    if request.out is not None:
        found.save(request.out / "units")
    return Result(
        records={"units": found},
        summary=as_text(units_table(found)),
        values={"units": found.values["units"], "size": found.values["size"]},
    )


def run_evaluate(request: Evaluate) -> Result:
    """Accuracy, likelihood and calibration; with ``on``, robustness."""
    use_threads(request.threads)
    from vitascope.studies.session.models import class_pairs

    how: dict[str, Any] = {
        "weights": None if request.weights is None else str(request.weights),
        "num_workers": request.workers,
        "num_images": request.images,
        "map_classes": class_pairs(request.map_classes),
        **_fields(request, ("pretrained", "image_size", "batch_size", "device", "split")),
    }
    trial = _trial(request)
    return _robustness(request, trial, how) if trial.on else _accuracy(request, how)


def _accuracy(request: Evaluate, how: dict[str, Any]) -> Result:
    from vitascope.report.tables.evaluation import evaluation_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.session.evaluation import evaluate_subject

    found = evaluate_subject(request.model, request.data, seed=request.seed, **how)
    if request.out is not None:
        found.save(request.out)
    return Result(
        records={"evaluation": found},
        summary=as_text(evaluation_table([found], [request.model], [None])),
        values=dict(found.values),
        notes=tuple(f"note: {note}" for note in found.config["notes"]),
    )


def _trial(request: Evaluate) -> Any:
    """What is done to the images."""
    from vitascope.studies.inspection.robustness import Trial, on_names

    same = (
        *("sizes", "fill", "against", "steps", "frequencies", "window", "rms", "severities"),
        *("num_bins", "seed"),
    )
    epsilons = request.epsilons
    return Trial(
        on=on_names(request.on),
        epsilons=None if epsilons is None else tuple(map(_number, epsilons)),
        clamp=request.clamp or None,
        corrupted=None if request.corrupted is None else str(request.corrupted),
        **_fields(request, same),
    )


def _number(word: str) -> float:
    """A number or a fraction.

    >>> _number("0.5"), _number("1/4")
    (0.5, 0.25)
    """
    try:
        return float(Fraction(word))
    except (ValueError, ZeroDivisionError):
        raise UserError(f"--epsilons takes numbers like 8/255 or 0.03, not {word!r}") from None


def _few(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Arrays as lists, but for those with a number an image: they are in the record."""
    return {name: a.tolist() for name, a in arrays.items() if not name.startswith("images/")}


def _robustness(request: Evaluate, trial: Any, how: dict[str, Any]) -> Result:
    from vitascope.report.instruments.robustness_readings import READINGS
    from vitascope.report.instruments.summary import left_out, summary_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.session.evaluation import evaluate_on

    with Progress("measuring", quiet=request.quiet or request.json) as bar:
        records = evaluate_on(request.model, request.data, trial=trial, on_step=bar.show, **how)
    read = [f"{name}: {READINGS[record.kind](record)}" for name, record in records.items()]
    notes = next(iter(records.values())).config["notes"]
    measured = {name: {**record.values, **_few(record.arrays)} for name, record in records.items()}
    told = {"subject": request.model, "seed": request.seed, "measures": measured, "notes": notes}
    result = Result(
        records=records,
        summary="\n".join([as_text(summary_table(records)), *read]),
        values=told,
        notes=(*left_out(records), *(f"note: {note}" for note in notes)),
    )
    if request.out is None:
        return result
    return replace(result, written=result.save(request.out, (*FORMATS, "pdf")))


def run_compare(request: Compare) -> Result:
    """Train the models and say which one suits the images."""
    from vitascope import record
    from vitascope.report.exports import write_figures
    from vitascope.report.folder_page import write_folder_page
    from vitascope.report.sections.comparison_record import ComparisonRecord
    from vitascope.report.tables.comparison import comparison_text
    from vitascope.studies.compare import compare as compared

    answer = compared(question_of(request), request.out, _on_this_machine(request))
    page = write_folder_page(request.out)
    keys = ("table", "crossings", "recommendation", "models")
    explorers = sorted((request.out / "explorer").glob("*.json"))
    result = Result(
        records={
            "compare": answer,
            **{f"explorer/{path.stem}": record.load(path.with_suffix("")) for path in explorers},
        },
        summary=f"{comparison_text(ComparisonRecord(answer))}\n",
        values={**{key: answer.values[key] for key in keys}, "report": str(page)},
        written=page,
    )
    if request.figures:
        write_figures(result._report(), request.out, (*FORMATS, "pdf"))
    return result


def question_of(request: Compare) -> Any:
    """What a comparison trains."""
    from vitascope.studies.compare import Comparison
    from vitascope.studies.grid.one_training import recipe_from

    return Comparison(
        recipe=recipe_from(request.recipe, request.epochs, request.set),
        overrides=request.set,
        **_fields(request, ("data", "models", "fractions", "seeds", "image_size", "margin")),
    )


def run_buildup(request: Buildup) -> Result:
    """Search for the convolutions that should be attention."""
    from vitascope.report.folder_page import write_record_figures
    from vitascope.report.sections.buildup import says
    from vitascope.report.tables.buildup import buildup_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.buildup import BuildUp, build_up
    from vitascope.studies.grid.one_training import pairs, recipe_from

    same = ("data", "base", "seeds", "validation", "margin", "max_candidates", "image_size")
    question = BuildUp(
        model_args=pairs(request.model_args, "--model-args"),
        recipe=recipe_from(request.recipe, request.epochs, request.set),
        **_fields(request, same),
    )
    with Progress(quiet=request.quiet or request.json) as bar:
        answer = build_up(question, request.out, _on_this_machine(request), progress=bar.tell)
    figures = write_record_figures(request.out, {"buildup": answer}, (*FORMATS, "pdf"))
    return Result(
        records={"buildup": answer},
        summary=f"{as_text(buildup_table(answer))}\n\n{says(answer)}\n",
        values={**answer.values, "figures": [str(path) for path in figures]},
        written=figures[0],
    )


def run_spectra(request: Spectra) -> Result:
    """Compare the Hessian spectra of runs."""
    use_threads(request.threads)
    from vitascope.report.folder_page import write_record_figures
    from vitascope.report.tables.spectra import spectra_table
    from vitascope.report.tables.writers import as_text
    from vitascope.studies.inspection.curvature import Curvature
    from vitascope.studies.inspection.spectra import spectra

    plan = Curvature(
        num_batches=request.batches,
        num_eigenvalues=request.eigenvalues,
        **_fields(request, ("tolerance", "batch_norm", "processes")),
    )
    with Progress("spectra", quiet=request.quiet or request.json) as bar:
        answer = spectra(
            request.runs,
            request.out,
            epochs=request.epochs,
            plan=plan,
            seed=request.seed,
            on_step=bar.show,
        )
    figures = write_record_figures(request.out, {"spectra": answer}, (*FORMATS, "pdf"))
    return Result(
        records={"spectra": answer},
        summary=f"{as_text(spectra_table(answer))}\n",
        values={**answer.values, "figures": [str(path) for path in figures]},
        written=figures[0],
    )


def _study_with_page(name: str, request: Study) -> Result:
    from vitascope.report.folder_page import write_folder_page
    from vitascope.studies.papers.answer import check_images
    from vitascope.studies.papers.catalog import find

    study = find(name)
    check_images({study.name: study.plan(scale_of(study, request))})
    return replace(run_study(study, request), written=write_folder_page(request.out))


def run_study(study: Any, request: Study) -> Result:
    """Answer one study of a paper, whose images are known to be there."""
    from vitascope.report.tables.study import study_text
    from vitascope.studies.papers.answer import answer

    found = answer(study, scale_of(study, request), request.out, engine_of(request))
    return Result(records={study.name: found}, summary=study_text(found), values=found.values)


def scale_of(study: Any, request: Study) -> Any:
    """The scale of a study, with what the request changes."""
    from vitascope.studies.papers.scale import SCALES

    needed = study.data["paper"].lower()  # of several sources, the kind that the study names
    fitting = [word for word in request.data if f"{word.partition(':')[0]}:" in needed]
    changes: dict[str, Any] = {
        "data": next(iter([*fitting, *request.data]), None),
        "seeds": request.seeds or None,
        **_fields(request, ("image_size", "epochs", "recipe")),
    }
    given = {name: value for name, value in changes.items() if value is not None}
    return replace(SCALES[request.scale], **given)


def engine_of(request: Study) -> Any:
    """Where the runs of a study are made."""
    from vitascope.studies.grid.executor import Engine
    from vitascope.studies.grid.one_training import pairs

    return Engine(
        kind=request.engine,
        processes=_processes(request),
        options=pairs(request.slurm, "--slurm"),
        quiet=request.quiet or request.json,
        **_fields(request, ("gpus", "nodes", "hours")),
    )


def _fields(request: Any, names: Iterable[str]) -> dict[str, Any]:
    """Fields that have the same name elsewhere."""
    return {name: getattr(request, name) for name in names}


def _on_this_machine(request: Compare | Buildup) -> Any:
    """Runs side by side, in processes of this machine."""
    from vitascope.studies.grid.executor import Engine

    return Engine(processes=_processes(request), quiet=request.quiet or request.json)


def _processes(request: Compare | Buildup | Study) -> int:
    """As many as were asked for, or one a core."""
    if request.processes is not None:
        return request.processes
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, kw_only=True)
class Loaded:
    """A trained model, ready to be used: ``model(transform(image)[None])`` are logits."""

    model: "nn.Module"  # in evaluation mode
    classes: tuple[str, ...]  # in the order of its outputs
    size: tuple[int, int, int]  # of its images: channels, height, width
    mean: tuple[float, ...]
    std: tuple[float, ...]
    crop_pct: float = 1.0  # share of the resized image that is kept

    def transform(self, image: "str | Path | Image.Image") -> "Tensor":
        """An image or its file as the model takes it: decoded, resized, normalised. (C, H, W)

        Raises:
            UserError: If it cannot be read.
        """
        import torch

        from vitascope.data.decoding import fit, opened, upright
        from vitascope.data.images import MODES, to_tensor

        channels, height, width = self.size
        try:
            found = opened(image) if isinstance(image, str | Path) else image
            whole = upright(found).convert(MODES[channels])
            pixels = to_tensor(fit(whole, height, width, self.crop_pct))
        except (OSError, UserError) as error:
            raise UserError(f"{image}: {error}") from None
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (self.mean, self.std))
        return (pixels / 255 - mean) / std


def load(run: str | Path, *, device: str | None = None) -> Loaded:
    """The model of a finished run, with its image transform and class names.

    Args:
        run: The run's folder.
        device: cpu, cuda or mps; the best there is when left out.

    Raises:
        UserError: If there is no finished run.
    """
    from vitascope.data.sources.imagenet import CROP_PCT
    from vitascope.studies.session.models import open_session

    if not Path(run).is_dir():
        raise UserError(f"there is no folder {run}; give the folder of a finished run")
    session = open_session(str(run), device=device)
    assert session.size is not None  # a run has them
    assert session.mean is not None
    assert session.std is not None
    return Loaded(
        model=session.model,
        classes=session.classes or (),
        size=session.size,
        mean=session.mean,
        std=session.std,
        crop_pct=CROP_PCT if (session.data or "").startswith("imagenet") else 1.0,
    )


class Prediction(NamedTuple):
    """What a model says of one file."""

    file: Path
    label: str
    probability: float


def predict(
    run: str | Path,
    files: Sequence[str | Path],
    *,
    top: int = 1,
    batch_size: int = 64,
    device: str | None = None,
) -> list[Prediction]:
    """The most likely classes of image files, ``top`` of each, the likeliest first.

    Args:
        run: The folder of a finished run.
        files: Images.
        top: How many classes of each file.
        batch_size: Images at a time.
        device: cpu, cuda or mps; the best there is when left out.

    Raises:
        UserError: If there is no finished run, or a file cannot be read.
    """
    import torch

    from vitascope.capture import logits_of

    loaded = load(run, device=device)
    if top < 1 or batch_size < 1:
        raise UserError("give at least 1 for top and batch_size")
    place = next(loaded.model.parameters()).device
    found = []
    for start in range(0, len(files), batch_size):
        names = [Path(file) for file in files[start : start + batch_size]]
        images = torch.stack([loaded.transform(name) for name in names]).to(place)
        with torch.inference_mode():
            probabilities = logits_of(loaded.model(images)).softmax(dim=-1)
        best = probabilities.topk(min(top, probabilities.shape[-1]), dim=-1)
        for name, shares, indices in zip(
            names, best.values.tolist(), best.indices.tolist(), strict=True
        ):
            found += [
                Prediction(name, loaded.classes[index], share)
                for share, index in zip(shares, indices, strict=True)
            ]
    return found
