"""A comparison's record with made-up numbers, as small or as large as a test wants it."""

import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import numpy as np

from vitascope.commands.result import Result
from vitascope.record import Record, load
from vitascope.report.exports import write_figures
from vitascope.report.page import EXPLORER, compose, write_report
from vitascope.report.page import KINDS as SHOWN
from vitascope.report.records import FoundRecords, Source, find

KINDS = ("convit", "vit", "cnn", "other")
LABELS = ("ConViT", "ViT", "ResNet", "Mixer")


def write_record_figures(folder: Path, records: dict[str, Record], formats: tuple[str, ...]):
    """The figures that a report of these records has, as files."""
    report = Result(records=records, summary="", values=None).report()
    return write_figures(report, folder, formats)


def made_up(
    num_models: int = 3,
    fractions: tuple[float, ...] = (0.1, 0.3, 1.0),
    seeds: tuple[int, ...] = (0, 1),
    inside: bool = True,
    num_layers: int = 3,
    num_heads: int = 4,
    num_epochs: int = 30,
    labels: tuple[str, ...] = LABELS,
    data_name: str = "digits",
    classes: tuple[str, ...] = tuple("0123456789"),
) -> Record:
    """Models that learn alike, the later ones a little worse with few images."""
    random = np.random.default_rng(0)
    labels = tuple(labels[i] if i < len(labels) else f"model {i + 1}" for i in range(num_models))
    names = [f"model_{i}" for i in range(num_models)]
    kinds = [KINDS[i % 4] for i in range(num_models)]
    cells, table, curves, gates, nonlocality, arrays = [], [], [], [], [], {}
    epochs = list(range(1, num_epochs + 1))
    for fraction in fractions:
        entries = []
        for i, name in enumerate(names):
            base = 94 - (5 + 4 * i) * (0.1 / fraction) ** 0.7 + min(2.4 * i, 5.0) * fraction
            tops = []
            for seed in seeds:
                top1 = float(base + random.normal(scale=0.8))
                tops.append(top1)
                cell = {"model": name, "fraction": fraction, "seed": seed, "top1": top1}
                cells.append(cell | {"num_images": int(1437 * fraction), "epochs": num_epochs})
                rise = 1 - np.exp(-np.array(epochs) / (4 + 2 * i))
                noise = random.normal(size=num_epochs)
                curves.append(
                    cell
                    | {"epochs": epochs, "top1": (top1 * rise + 0.4 * noise).tolist()}
                    | {"train_nll": (2.3 * (1.02 - rise) + 0.02 * abs(noise)).tolist()}
                )
            entries.append((name, tops))
        reference = float(np.mean(entries[min(1, num_models - 1)][1]))
        row = []
        for i, (name, tops) in enumerate(entries):
            mean = float(np.mean(tops))
            gain = 100 * (mean - reference) / reference
            is_reference = i == min(1, num_models - 1)
            verdict = "within noise" if abs(gain) < 1.6 else "ahead" if gain > 0 else "behind"
            row.append(
                {
                    "model": name,
                    "mean": mean,
                    "std": float(np.std(tops, ddof=1)) if len(seeds) > 1 else None,
                    "num_seeds": len(seeds),
                    "low": mean - 2.5,
                    "high": min(100.0, mean + 2.5),
                    "gain": None if is_reference else gain,
                    "gain_low": None if is_reference or len(seeds) < 2 else gain - 1.6,
                    "gain_high": None if is_reference or len(seeds) < 2 else gain + 1.6,
                    "verdict": "reference" if is_reference else verdict,
                }
            )
        table.append({"fraction": fraction, "num_images": int(1437 * fraction), "entries": row})
        for name, kind in zip(names, kinds, strict=True):
            if not inside or kind != "convit":
                continue
            time = np.linspace(0, 1, num_epochs)[:, None, None]
            slope = random.uniform(0.0, 0.3, (1, num_layers, num_heads))
            for what, values in (
                ("gates", 0.73 - slope * time * (0.4 + fraction)),
                ("nonlocality", 1.1 + 5 * slope * time**0.5),
            ):
                array = f"{what}/{name}/{fraction}"
                arrays[array] = values.astype(np.float32)
                item = {"model": name, "fraction": fraction, "epochs": epochs, "array": array}
                item["layers"] = [f"blocks.{layer}.attn" for layer in range(num_layers)]
                if what == "gates":
                    gates.append(item)
                else:
                    nonlocality.append(item | {"grid": [8, 8], "uniform": 4.05})
    crossings = []
    for left, right in pairwise(table):
        before, after = (
            row["entries"][0]["mean"] - row["entries"][-1]["mean"] for row in (left, right)
        )
        if before > 0 > after:
            way = before / (before - after)
            fraction = left["fraction"] * (right["fraction"] / left["fraction"]) ** way
            text = (
                f"{labels[num_models - 1]} overtakes {labels[0]} at {fraction:.0%} of the images."
            )
            pair = {"first": names[0], "second": names[-1]}
            crossings.append(pair | {"fraction": fraction, "text": text})
    pair = {"first": names[0], "second": names[min(1, num_models - 1)], "fraction": None}
    crossings.append(pair | {"text": "The other curves do not cross within these fractions."})
    values = {
        "question": "Which model, with how much built-in locality, for these images?",
        "data": {
            "name": data_name,
            "num_train": 1437,
            "num_test": 360,
            "num_classes": len(classes),
            "classes": list(classes),
            "size": [1, 8, 8],
            "notes": ["Handwritten digits of scikit-learn, 8 × 8 grey levels."],
        },
        "models": [
            {
                "name": name,
                "label": label,
                "kind": kind,
                "locality": ("gated, learned", "none", "hard-wired", "none")[i % 4],
                "parameters": 180_000 + 9_000 * i,
                "multiply_adds": 3_100_000 * (1 + 0.6 * i),
                "images_per_second": 2100 / (1 + 0.3 * i),
            }
            for i, (name, label, kind) in enumerate(zip(names, labels, kinds, strict=True))
        ],
        "reference": names[min(1, num_models - 1)],
        "fractions": list(fractions),
        "seeds": list(seeds),
        "cells": cells,
        "table": table,
        "crossings": crossings if len(fractions) > 1 and num_models > 1 else [],
        "recommendation": {
            "model": names[0],
            "headline": f"Use {labels[0]}: it learns most from few of these images.",
            "sentences": [
                f"With a tenth of the images {labels[0]} is ahead; with all, the models are alike.",
                "If speed matters more than the last point, a plain ViT will do.",
            ],
            "evidence": ["18 runs: 3 models, 3 fractions, 2 seeds.", "Every model passed 90 %."],
            "confidence": "clear" if len(seeds) > 1 else "within noise",
        },
        "curves": curves,
        "gates": gates,
        "nonlocality": nonlocality,
        "recipe": {"name": "laptop", "lr": 0.001, "batch_size": 64, "augment": None},
        "command": "vitascope compare --data digits --models model_0 model_1 --seeds 0 1",
    }
    return Record(kind="compare", values=values, arrays=arrays, seed=0, seconds=231.0)


def write_page(folder: Path, record: Record | None = None) -> Path:
    """Write ``folder/report.html`` of ``folder/compare.json`` (or the record given)."""
    comparison = load(folder / "compare") if record is None else record
    sources = [Source(path=folder / "compare.json", record=comparison)]
    if (folder / EXPLORER).is_dir():
        sources += find([folder / EXPLORER], [EXPLORER]).sources
    return write_report(compose(FoundRecords(sources=tuple(sources))), folder)


def report_of(*paths):
    """The contents of the page of what lies there."""
    return compose(find(paths, SHOWN))


def check_drawn_again_without_torch(folder, names):
    """The figures of records are made from the records alone, to the same bytes."""
    code = (
        "import sys; from pathlib import Path; from vitascope.record import load\n"
        "from vitascope.commands.result import Result\n"
        "from vitascope.report.exports import write_figures\n"
        "folder, *names = sys.argv[1:]\n"
        "records = {name: load(Path(folder) / name) for name in names}\n"
        "report = Result(records=records, summary='', values=None).report()\n"
        "written = write_figures(report, Path(folder) / 'again', ('png', 'svg'))\n"
        "assert len(written) == 2 * len(names)\n"
        "assert 'torch' not in sys.modules"
    )
    command = [sys.executable, "-c", code, str(folder), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    for name in names:
        one, other = (folder / f / f"{name}.svg" for f in ("figures", "again/figures"))
        assert one.read_bytes() == other.read_bytes()
