"""Trainings: how accurate the models became, how, and at what cost.

A run is trained again by the command that was typed, or by one with all of its settings.
"""

from collections.abc import Sequence

from vitascope.figure import Figure, Lines, Series, Style
from vitascope.formatting import count, duration, number
from vitascope.report.figures.style import Styles, apart
from vitascope.report.records import Source
from vitascope.report.sections.section import Again, Badge, Section, again, made_by, pinned
from vitascope.settings import changed, command_line
from vitascope.table import Cell, Table, row

_NO_ARGUMENT = (
    "name",
    "num_classes",
    "in_chans",
    "img_size",
    "drop_path_rate",
    "pretrained",
    "weights",
)  # of a model: they follow from data and recipe, or are options


def run_again(source: Source, title: str = "") -> Again:
    """The command, the circumstances and the whole recipe."""
    record, teacher = source.record, source.record.config.get("teacher")
    command = made_by(record, "train") or _typed_out(source)
    notes = (f"TEACHER is a {teacher}.",) if "--teacher TEACHER" in command else ()
    return again(record, command, recipe=source.settings("recipe"), notes=notes, title=title)


def _typed_out(source: Source) -> str:
    """The training from its settings alone: all of them, for the usual ones may change."""
    data, model, recipe = (source.settings(part) for part in ("data", "model", "recipe"))
    given = {name: value for name, value in model.items() if name not in _NO_ARGUMENT}
    size = data.get("size") or (None,)
    options = [
        ("--model", model.get("name")),
        ("--model-args", changed(given)),
        ("--pretrained", model.get("pretrained")),
        ("--weights", model.get("weights")),
        ("--data", data.get("name")),
        ("--image-size", size[-1]),
        ("--recipe", recipe.get("name")),
        ("--set", changed({k: v for k, v in recipe.items() if k != "name"})),
        ("--teacher", "TEACHER" if source.record.config.get("teacher") else None),
        ("--seed", source.record.seed),
        *pinned(source.record),
        ("--out", source.folder),
    ]
    return command_line(["vitascope", "train"], options)


_WHAT = {  # a line of metrics.jsonl: title, axis, factor, floor, ceiling
    "top1": ("Top-1 accuracy on the test images", "top-1 (%)", 100, 0.0, 100.0),
    "train_nll": ("Training loss", "NLL (nats)", 1, 0.0, float("inf")),
    "test_nll": ("Loss on the test images", "NLL (nats)", 1, 0.0, float("inf")),
}

TERMS = (
    ("Top-1 accuracy", "The share of test images whose most probable class is the right one."),
    ("NLL", "Negative log-likelihood of the right class, in nats; lower is better."),
    ("ECE", "Expected calibration error: the mean gap between confidence and accuracy."),
)


def model_name(source: Source) -> str:
    """The model that was trained."""
    return str(source.settings("model").get("name") or source.folder.resolve().name)


def models(sources: Sequence[Source]) -> list[tuple[str, str]]:
    """(name, kind) of each model; a run does not say its kind."""
    return [(model_name(source), "other") for source in sources]


def labels_of(sources: Sequence[Source]) -> list[str]:
    """The models' names, told apart by seed or folder where one was trained more than once."""
    names = [model_name(source) for source in sources]
    seeded = [f"{n}, seed {s.record.seed}" for n, s in zip(names, sources, strict=True)]
    labels = []
    for index, name in enumerate(names):
        if names.count(name) == 1:
            labels.append(name)
        elif seeded.count(seeded[index]) == 1:
            labels.append(seeded[index])
        else:
            labels.append(f"{name} ({sources[index].folder.resolve().name})")
    return labels


def section(sources: Sequence[Source], styles: Styles) -> Section:
    """All runs together in one section."""
    names = labels_of(sources)
    finals = [_last(source, "top1") for source in sources]
    order = sorted(range(len(names)), key=lambda i: -(finals[i] or 0))
    best = order[0]
    data = {str(s.settings("data").get("name") or "its images") for s in sources}
    where = next(iter(data)) if len(data) == 1 else "their images"
    epochs = sources[best].record.values.get("epochs")
    answer = f"{names[best]} reaches {number(_percent(finals[best]), 1)} % top-1 on {where}"
    if len(names) == 1:
        answer += f" after {epochs} epochs."
    else:
        rest = [f"{names[i]} {number(_percent(finals[i]), 1)} %" for i in order[1:4]]
        answer += f"; {', '.join(rest)}" + (", …." if len(order) > 4 else ".")
    open_runs = [
        n for n, s in zip(names, sources, strict=True) if s.record.values.get("unfinished")
    ]
    seeds = {s.record.seed for s in sources}
    leads = []
    cautions = [f"Not finished: {', '.join(open_runs)}."] if open_runs else []
    folder = str(sources[0].folder)
    predict = command_line(["vitascope", "predict", folder, "IMAGES"], [("--out", "answers.csv")])
    inside = command_line(["vitascope", "inspect", folder], [("--out", "inside")])
    several = len(names) > 1
    titles = names if several else [""]
    question = "Which training ends best?" if several else f"How good did {names[0]} become?"
    if several and len(seeds) == 1:
        leads.append(
            "One seed per model: the spread is not known, and small differences mean little."
        )
    figures = _figures(sources, names, styles)
    return Section(
        kind="run",
        label="Training" if not several else "Trainings",
        title=f"Training {names[0]}" if not several else f"Training {len(names)} models",
        question=question,
        answer=answer,
        badge=Badge(text="Not finished") if open_runs else None,
        leads=tuple(leads),
        cautions=tuple(cautions),
        steps=()
        if several or open_runs
        else (("Classify images with it", predict), ("Look inside it", inside)),
        facts=_facts(sources),
        figures=figures,
        tables=(_table(sources, names, styles),),
        terms=TERMS,
        agains=tuple(run_again(s, n) for s, n in zip(sources, titles, strict=True)),
        source="record.json" if not several else "",
    )


def _last(source: Source, metric: str) -> float | None:
    final = source.record.values.get("final") or {}
    value = final.get(metric)
    if value is None:
        value = (source.record.values.get("best") or {}).get(metric)
    return value if isinstance(value, (int, float)) else None


def _percent(value: float | None) -> float | None:
    return None if value is None else 100 * value


def _facts(sources: Sequence[Source]) -> tuple[tuple[str, str], ...]:
    data, recipe = sources[0].settings("data"), sources[0].settings("recipe")
    facts = [
        ("images", data.get("name")),
        ("to train on", data.get("train_images")),
        ("classes", data.get("num_classes")),
        ("recipe", recipe.get("name")),
        ("epochs", recipe.get("epochs")),
        ("images per step", recipe.get("batch_size")),
    ]
    return tuple((k, count(v) if isinstance(v, int) else str(v)) for k, v in facts if v is not None)


def learning_curve(source: Source, metric: str, factor: float, label: str, style: Style) -> Series:
    """A number of ``metrics.jsonl`` over the epochs in which it was measured."""
    rows = [row for row in source.metrics if isinstance(row.get(metric), (int, float))]
    xs, ys = [row["epoch"] for row in rows], [factor * row[metric] for row in rows]
    return Series(label=label, x=xs, y=ys, style=style)


def _figures(sources: Sequence[Source], names: Sequence[str], styles: Styles) -> tuple[Figure, ...]:
    chosen = apart([styles.of(model_name(source)) for source in sources])
    panels = []
    for metric, (title, axis, factor, floor, ceiling) in _WHAT.items():
        curves = [
            learning_curve(source, metric, factor, name, style)
            for source, name, style in zip(sources, names, chosen, strict=True)
        ]
        series = [curve for curve in curves if curve.x]
        if series:
            panels.append(
                Lines(
                    title=title,
                    x_label="epoch",
                    y_label=axis,
                    series=tuple(series),
                    floor=floor,
                    ceiling=ceiling,
                )
            )
    if not panels:
        return ()
    return (
        Figure(
            name="learning",
            title="Learning curves",
            reading=_reading(sources, names),
            how="One line per run, measured after each epoch.",
            panels=tuple(panels),
        ),
    )


def _reading(sources: Sequence[Source], names: Sequence[str]) -> str:
    parts = []
    for source, name in list(zip(sources, names, strict=True))[:4]:
        best, final = (
            source.record.values.get("best") or {},
            source.record.values.get("final") or {},
        )
        if best.get("top1") is None:
            continue
        sentence = f"{name} is best at epoch {best['epoch']} ({number(100 * best['top1'], 1)} %)"
        if final.get("top1") is not None and final.get("epoch") != best.get("epoch"):
            sentence += f" and ends at {number(100 * final['top1'], 1)} %"
        parts.append(sentence)
    return "; ".join(parts) + "." if parts else "No accuracy was measured."


def _table(sources: Sequence[Source], names: Sequence[str], styles: Styles) -> Table:
    tops = [_percent(_last(source, "top1")) for source in sources]
    measured = [top for top in tops if top is not None]
    rows = []
    for source, name, top in zip(sources, names, tops, strict=True):
        best = (source.record.values.get("best") or {}).get("top1")
        speed = (source.record.values.get("final") or {}).get("images_per_second")
        highest = len(measured) > 1 and top is not None and top == max(measured)
        cells: list[str | Cell] = [
            Cell(text=number(top, 1), bold=highest),
            number(_percent(best), 1),
            number(_percent(_last(source, "top5")), 1),
            number(_last(source, "test_nll"), 3),
            number(_percent(_last(source, "ece")), 1),
            "" if speed is None else count(speed),
            duration(source.record.seconds),
        ]
        rows.append(row(name, cells, style=styles.of(model_name(source))))
    return Table(
        name="runs",
        title="At the end of training, on the test images",
        corner="Run",
        columns=("Top-1 (%)", "Best (%)", "Top-5 (%)", "NLL", "ECE (%)", "Images/s", "Took"),
        rows=tuple(rows),
    )
