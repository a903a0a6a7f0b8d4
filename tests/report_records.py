"""Records of every kind a report shows, with made-up numbers."""

import json
from html.parser import HTMLParser
from pathlib import Path

import numpy as np

from vitascope.record import Record

EVIL = "<img src=x onerror=alert(1)>"
VOID = {"meta", "link", "input", "br", "hr", "img"}


class Page(HTMLParser):
    """Every tag closed in order, ids unique, and what elements and attributes there are."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(html)
        self.close()
        assert self.open == []
        ids = [attributes["id"] for _, attributes in self.tags if "id" in attributes]
        assert len(ids) == len(set(ids))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def made_study(
    name: str = "sample-efficiency",
    verdicts: tuple[str, ...] = ("agrees", "disagrees", "undecided"),
    models: tuple[str, ...] = ("convit_micro", "vit_micro"),
    words: str = "",
    num_points: int = 10,
) -> Record:
    """A study with a table, a claim a verdict, a panel of each kind; ``words`` go everywhere."""
    random = np.random.default_rng(0)
    x = list(range(1, num_points + 1))
    lines = [
        {
            "label": f"{model}{words}",
            "model": model,
            "x": x,
            "y": [None if i == 3 else 50 + 10 * place + 30 * (1 - 0.8**i) for i in x],
            "low": [48 + 10 * place + 30 * (1 - 0.8**i) for i in x],
            "high": [52 + 10 * place + 30 * (1 - 0.8**i) for i in x],
        }
        for place, model in enumerate(models)
    ]
    dots = [
        {
            "label": f"{model}{words}",
            "model": model,
            "values": [[40 + place, 42 + place], [60, 61.5 - place], [None, None]],
            "paper": [47.8, None, 79.9],
        }
        for place, model in enumerate(models)
    ]
    rows = [
        {
            "label": f"{model}{words}",
            "paper_label": f"ConViT-S{words}",
            "cells": [
                {"ours": [41.0, 43.0], "mean": 42.0, "std": 1.41, "paper": 47.8},
                {"ours": [], "mean": None, "std": None, "paper": None},
            ],
        }
        for model in models
    ]
    panels = [
        {
            "kind": "lines",
            "title": f"Accuracy{words}",
            "x_label": "epoch",
            "y_label": "top-1, %",
            "x_log": False,
            "y_log": False,
            "series": lines,
        },
        {
            "kind": "dots",
            "title": "By share",
            "y_label": "top-1, %",
            "series": dots,
            "groups": ["5 %", f"10 %{words}", "all"],
        },
        {
            "kind": "heat",
            "title": "Which pays",
            "rows": ["1", "2"],
            "columns": ["a", f"b{words}", "c"],
            "array": "heat",
            "label": "top-1",
            "log": False,
        },
        {
            "kind": "maps",
            "title": "Maps",
            "array": "maps",
            "rows": ["layer 1", "layer 2"],
            "columns": ["head 1", "head 2", "head 3"],
            "log": True,
        },
    ]
    values = {
        "study": name,
        "title": f"Sample efficiency{words}",
        "claim": f"Locality helps most when images are few{words}",
        "scale": "laptop",
        "data": f"digits{words}",
        "num_test": 360,
        "covers": ["ConViT Table 2", "ConViT Fig. 2 left"],
        "seeds": [0, 1],
        "num_runs": 12,
        "command": f"vitascope study {name} --scale laptop{words}",
        "tables": [
            {
                "name": "top1",
                "title": "Top-1",
                "corner": "Model",
                "unit": "top-1, %",
                "columns": ["5 %", f"all{words}"],
                "digits": 1,
                "rows": rows,
            }
        ],
        "claims": [
            {
                "source": f"ConViT Table {i + 2}{words}",
                "text": f"Claim {i + 1}{words}",
                "table": "top1",
                "verdict": verdict,
                "contrast": 2.0,
                "low": 1.0,
                "high": 3.0,
                "detectable": 1.5,
                "p_value": 0.01,
                "paper": 4.0,
                "margin": 0.0,
                "unit": "points",
                "digits": 1,
                "reading": f"Ours is 42.0 against 40.0 ({i + 1}){words}.",
            }
            for i, verdict in enumerate(verdicts)
        ],
        "figures": [
            {
                "name": panel["kind"],
                "title": f"Figure of {panel['kind']}",
                "reading": f"The {panel['kind']} rise{words}.",
                "panels": [panel],
            }
            for panel in panels
        ],
    }
    arrays = {
        "heat": np.array([[10.0, 20.0, np.nan], [40.0, 55.0, 60.0]]),
        "maps": random.random((2, 3, 4, 5)),
    }
    return Record(kind="study", values=values, arrays=arrays, seed=0, seconds=321.0)


def write_run(
    folder: Path,
    model: str = "vit_micro",
    seed: int = 0,
    top1: float = 0.9,
    epochs: int = 5,
    finished: bool = True,
    data: str = "digits",
) -> Path:
    """A run's folder as training leaves it, without weights."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [
        {
            "epoch": e,
            "step": 10 * e,
            "train_nll": 2.3 / e,
            "test_nll": 2.2 / e,
            "top1": top1 * e / epochs,
            "top5": 0.99,
            "ece": 0.03,
            "images_per_second": 500.0,
        }
        for e in range(1, epochs + 1)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    config = {
        "recipe": {"name": "laptop", "epochs": epochs, "lr": 0.001, "batch_size": 64},
        "model": {"name": model, "num_classes": 10},
        "data": {"name": data, "num_classes": 10, "train_images": 1437},
        "seed": seed,
    }
    (folder / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    if finished:
        values = {
            "final": rows[-1],
            "best": rows[-1],
            "seconds": 12.5,
            "epochs": epochs,
            "steps": 10 * epochs,
            "world_size": 1,
        }
        Record(kind="run", values=values, config=config, seed=seed, seconds=12.5).save(
            folder / "record"
        )
    return folder


_CURVE = {  # of relevance
    "curve": [0.9, 0.1],
    "random": [0.9, 0.2],
    "area": 0.5,
    "random_area": 0.6,
    "gain": 0.1,
    "error": 0.01,
}


def inspection(
    model: str, gated: bool = True, layers: int = 4, subject: str = ""
) -> dict[str, Record]:
    """Records of every instrument of one model."""
    random = np.random.default_rng(len(model))
    names = [f"blocks.{i}.attn" for i in range(layers)]
    units = [u for i in range(layers) for u in (f"blocks.{i}.attn", f"blocks.{i}.mlp")]
    kinds = ["attention", "mlp"] * layers
    heads = {name: random.random(3) for name in names}
    where = {"units": units, "kind": kinds, "stage": [0] * len(units), "num_images": 64}
    means = [float(heads[name].mean()) for name in names]
    accuracy = {"clean": 0.9, "num_images": 64}
    bins = {
        "bin_count": [0, 10, 54],
        "bin_confidence": [0.0, 0.5, 0.9],
        "bin_accuracy": [0.0, 0.4, 0.8],
    }
    found: dict[str, tuple[dict, dict]] = {
        "nonlocality": (
            {
                "layers": names,
                "per_layer": means,
                "uniform": [2.0] * layers,
                "num_images": 64,
                "left_out": {"head": "one vector an image"},
            },
            heads,
        ),
        "entropy": (
            {
                "layers": names,
                "nats": means,
                "relative": [m / 2.77 for m in means],
                "num_keys": [16] * layers,
                "num_images": 64,
            },
            heads,
        ),
        "maps": (
            {
                "layers": names,
                "query": [[1.0, 1.0]] * layers,
                "gated": names[:1] if gated else [],
                "num_images": 64,
            },
            {
                f"{p}/{n}": random.random((3, 4, 4))
                for p in ("mixed", "content", "position")
                for n in names
            }
            | {f"gate/{n}": random.random(3) for n in names},
        ),
        "fourier": (
            where | {"high": random.normal(size=len(units)).tolist()},
            {f"{p}/{u}": random.random(3) for p in ("frequency", "amplitude") for u in units},
        ),
        "variance": (where | {"variance": random.random(len(units)).tolist()}, {}),
        "cka": (
            {
                "rows": units,
                "columns": units,
                "num_images": 64,
                "similarity": random.random((len(units), len(units))).tolist(),
            },
            {},
        ),
        "lesion": (where | {"intact": 0.9, "lost": random.random(len(units)).tolist()}, {}),
        "norms": (
            where
            | {
                "median": random.random(len(units)).tolist(),
                "high": [0.0, 0.02] * layers,
                "appears": units[1],
                "token_names": ["class token"],
                "layers": names,
                "drawn": [0.1] * layers,
                "even": [0.02] * layers,
            },
            {"quantiles": np.sort(random.random((len(units), 7)), 1) + 0.1}
            | {f"where/{unit}": random.random((4, 4)) for unit in units},
        ),
        "relevance": (
            {
                "methods": ["rollout", "grad-cam"],
                "layer": "blocks.2",
                "shares": [0.0, 1.0],
                "num_images": 64,
                "deletion": dict.fromkeys(("rollout", "grad-cam"), _CURVE),
                "insertion": dict.fromkeys(("rollout", "grad-cam"), _CURVE),
                "road": dict.fromkeys(("rollout", "grad-cam"), _CURVE),
                "road_shares": [0.0, 0.9],
                "randomised": {
                    "rollout": {"correlation": 0.3, "error": 0.04},
                    "grad-cam": {"correlation": 0.1, "error": None},
                },
            },
            {
                "map/rollout": random.random((2, 4, 4)),
                "map/grad-cam": random.random((2, 2, 2)),
                "pictures": random.random((2, 8, 8, 3)),
            },
        ),
        "masking": (
            {
                "unmasked": 0.9,
                "no_positions": 0.5,
                "num_images": 64,
                "content_masked": {"2": 0.4} if gated else {},
                "position_masked": {"2": 0.3} if gated else {},
            },
            {},
        ),
        "occlusion": (
            accuracy | {"sizes": [0.25, 0.5], "accuracy": [0.7, 0.4], "fill": "black"},
            {},
        ),
        "fgsm": (
            accuracy
            | {
                "epsilons": [1 / 255, 2 / 255],
                "accuracy": [0.6, 0.2],
                "steps": 1,
                "against": "label",
            },
            {},
        ),
        "frequency": (
            accuracy
            | {
                "frequencies": [0.1, 0.9],
                "accuracy": [0.5, 0.8],
                "window": 0.1,
                "rms": 0.1,
                "clamp": False,
            },
            {},
        ),
        "corruption": (
            accuracy
            | {
                "corruptions": ["fog", "snow"],
                "severities": [1, 5],
                "by_corruption": {"fog": 0.6, "snow": 0.4},
                "mean": 0.5,
                "mce": None,
                "constants": "cifar",
            },
            {"accuracy": np.array([[0.7, 0.5], [0.5, 0.3]])},
        ),
        "calibration": (
            bins
            | {
                "top1": 0.9,
                "top5": None,
                "nll": 0.4,
                "brier": 0.2,
                "ece": 0.05,
                "num_images": 64,
                "scaling": None,
            },
            {},
        ),
        "hessian": (
            {"nep": 0.25, "ape": 12.0, "num_batches": 4, "num_images": 64, "note": ""},
            {"eigenvalues": random.normal(5, 6, (4, 5))},
        ),
        "blocks": (
            {
                "groups": ["network", *names, "attention", "mlp"],
                "by": ["network", *["block"] * layers, "kind", "kind"],
                "num_weights": [10] * (layers + 3),
                "num_images": 64,
                **{
                    f"{matrix}_{what}": [1.0] * (layers + 3)
                    for matrix in ("hessian", "gauss_newton")
                    for what in ("trace", "error")
                },
            },
            {name: random.random((layers + 3, 2)) for name in ("hessian", "gauss_newton")},
        ),
        "density": (
            {"trace": 100.0, "trace_error": 2.0, "num_images": 64},
            {"nodes": random.normal(size=(2, 8)), "weights": np.full((2, 8), 0.125)},
        ),
        "landscape": (
            {"along": "random directions", "num_images": 64, "num_moved": 10, "num_weights": 12},
            {
                "axis_0": np.linspace(-1, 1, 5),
                "axis_1": np.linspace(-1, 1, 5),
                "nll": random.random((5, 5)),
                "l2": random.random((5, 5)),
            },
        ),
        "trajectory": (
            {
                "epochs": [0, 1, 2],
                "radius": [1.0, 0.5, 0.0],
                "angle": [0.0, 0.4, 0.0],
                "num_weights": 12,
            },
            {},
        ),
    }
    if gated:
        found["gates"] = ({"layers": names, "per_layer": means}, heads)
    config = {
        "subject": subject or model,
        "model": {"name": model},
        "epoch": None,
        "data": "digits",
        "num_images": 64,
        "notes": ["the images have one channel"],
    }
    return {
        kind: Record(kind=kind, values=values, arrays=arrays, config=config, seed=0, seconds=0.5)
        for kind, (values, arrays) in found.items()
    }


def write_inspection(folder: Path, model: str, **shape) -> Path:
    """Its folder, as ``vitascope inspect`` leaves it."""
    for kind, record in inspection(model, **shape).items():
        record.save(folder / kind)
    return folder


def made_evaluation(model="vit_micro", right=0.8, data="digits", images=400) -> Record:
    """What ``vitascope evaluate --out`` writes, of made-up numbers."""
    bins = {"count": [0, 100, 300], "confidence": [0.0, 0.5, 0.9], "accuracy": [0.0, 0.6, right]}
    return Record(
        kind="evaluation",
        values={"top1": right, "top5": None, "nll": 0.7, "ece": 0.1, "num_images": images},
        arrays={f"bin_{name}": np.array(value) for name, value in bins.items()},
        config={"subject": model, "name": model, "data": data, "split": "test", "notes": [data]},
        seconds=1.0,
    )
