"""Trainings and evaluations of other tasks than classification: segmentation, questions."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from vitascope.figure import Figure, Lines
from vitascope.formatting import count, duration, number
from vitascope.report.figures.style import Styles
from vitascope.report.records import Source
from vitascope.report.sections.run import learning_curve, model_name
from vitascope.report.sections.section import Section, again, made_by
from vitascope.table import Table, row

METRICS = {"miou": "mean IoU", "pixel_accuracy": "pixel accuracy", "vqa_score": "VQA score"}


_TERMS = {
    "miou": (
        "mean IoU",
        "Intersection over union of the predicted and the labelled pixels of a class, over all "
        "images together; the mean over the classes that occur.",
    ),
    "vqa_score": (
        "VQA score",
        "The mean over questions of min(people who gave that answer / 3, 1), averaged over leaving "
        "each of the ten people out.",
    ),
}


def _data(source: Source) -> str:
    """The folder of the data, without the way to it."""
    given = str(source.settings("data").get("name") or "its data")
    return Path(given.rpartition(":")[2]).name or given


def section(source: Source, styles: Styles) -> Section:
    """Return one section per run."""
    record, values = source.record, source.record.values
    name, data, recipe = model_name(source), source.settings("data"), source.settings("recipe")
    metric, final, best = str(values["metric"]), values["final"], values["best"]
    metric_name = METRICS[metric]
    answer = f"{name} reaches {number(100 * final[metric], 1)} % {metric_name} on {_data(source)} "
    answer += f"after {values['epochs']} epochs."
    panels = []
    for key, title, axis, factor in (
        (metric, metric_name, f"{metric_name} (%)", 100.0),
        ("train_loss", "Training loss", "loss", 1.0),
    ):
        line = learning_curve(source, key, factor, name, styles.of(name))
        if len(line.x) > 1:  # one point is no curve; the table has it
            panels.append(
                Lines(title=title, x_label="epoch", y_label=axis, series=(line,), floor=0.0)
            )
    reading = f"Best at epoch {best['epoch']}, {number(100 * best[metric], 1)} %."
    curves = Figure(
        name=f"learning-{values['task']}",
        title="Learning curves",
        reading=reading,
        panels=tuple(panels),
    )
    asked = "questions" if metric == "vqa_score" else "images"
    facts = [
        ("task", values["task"]),
        ("data", _data(source)),
        (f"{asked} to train on", data.get("train_images")),
        (f"{asked} to test on", data.get("test_images")),
        ("answers" if metric == "vqa_score" else "classes", data.get("num_classes")),
        ("recipe", recipe.get("name")),
        ("took", duration(record.seconds)),
    ]
    return Section(
        kind="task",
        label="Training",
        title=f"Training {name}: {values['task']}",
        question=f"How good did {name} become?",
        answer=answer,
        facts=tuple((k, count(v) if isinstance(v, int) else str(v)) for k, v in facts if v),
        figures=(curves,) if panels else (),
        tables=(task_table(final, name),),
        terms=(_TERMS[metric],),
        agains=(again(record, made_by(record, "train"), recipe=recipe),),
        source="record.json",
    )


def evaluation(source: Source, styles: Styles) -> Section:
    """The evaluation of a run: mean IoU with every class, or the VQA score."""
    record, values = source.record, source.record.values
    metric = "miou" if record.kind == "miou" else "vqa_score"
    answer = f"{number(100 * values[metric], 1)} % {METRICS[metric]} on {_data(source)}."
    tables = [task_table(values, str(record.config.get("run") or "model"))]
    if "per_class" in record.arrays:
        scores = np.asarray(record.arrays["per_class"], float)
        names = values.get("classes") or [f"class {i + 1}" for i in range(len(scores))]
        order = sorted(range(len(scores)), key=lambda i: -np.nan_to_num(scores[i], nan=-1.0))
        rows = [
            row(str(names[i]), [number(100 * scores[i], 1) if np.isfinite(scores[i]) else ""])
            for i in order
        ]
        tables.append(
            Table(
                name="classes",
                title="Every class; empty where it does not occur",
                corner="Class",
                columns=("IoU (%)",),
                rows=tuple(rows),
            )
        )
    return Section(
        kind="task",
        label="Evaluation",
        title=f"Evaluation: {METRICS[metric]}",
        question="How good is the model on its test data?",
        answer=answer,
        tables=tuple(tables),
        terms=(_TERMS[metric],),
        agains=(again(record, made_by(record, "evaluate")),),
        source=source.path.name,
    )


def task_table(values: Mapping[str, Any], name: str) -> Table:
    """The metrics that there are, in percent."""
    shown = {key: title for key, title in METRICS.items() if values.get(key) is not None}
    return Table(
        name="task",
        title="On the test data",
        corner="Model",
        columns=tuple(f"{title} (%)" for title in shown.values()),
        rows=(row(name, [number(100 * values[key], 2) for key in shown]),),
    )
