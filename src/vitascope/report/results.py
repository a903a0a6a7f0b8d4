"""`docs/results.md` from the records beside it: what was measured, when, and how to get it again.

`make results` writes it: `python -m vitascope.report.results FOLDER ... docs/results.md`.
Each record becomes a section, studies first in the papers' order, the rest by file name. A figure
whose name starts with a record's name (``figures/cifar10-gates.png`` for
``cifar10.json``) is shown under it.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np

from vitascope.record import Record, load, write_text
from vitascope.report.results_bench import benchmark
from vitascope.report.results_studies import in_order, verdicts
from vitascope.report.sections.spectra import HEAD, rows
from vitascope.report.sections.study_text import study_markdown
from vitascope.report.tables.terminal import markdown

__all__ = ["results_page", "section"]


def section(record: Record) -> str:
    """One record in words and tables."""
    writers = {
        "compare": _comparison,
        "bench-gpsa": benchmark,
        "bench-training": benchmark,
        "bench-inspect": benchmark,
        "bench-neighborhood": benchmark,
        "bench-corruptions": benchmark,
        "bench-hessian": benchmark,
        "fourier": _along_units,
        "variance": _along_units,
        "spectra": _spectra,
        "frequency": _frequency,
        "study": study_markdown,
    }
    body = writers.get(record.kind, _values)(record)
    return f"{body}\n\n{_made(record)}"


def _comparison(record: Record) -> str:
    values = record.values
    models = [model["name"] for model in values["models"]]
    rows = []
    for row in values["table"]:
        entries = {entry["model"]: entry for entry in row["entries"]}
        cells = [f"{100 * row['fraction']:g} % ({row['num_images']:,})"]
        for model in models:
            entry = entries[model]
            cell = f"{entry['mean']:.1f}" + (f" ± {entry['std']:.1f}" if entry["std"] else "")
            if entry["gain"] is not None:
                low, high = entry["gain_low"], entry["gain_high"]
                cell += f" ({entry['gain']:+.1f} % [{low:+.1f}, {high:+.1f}], {entry['verdict']})"
            cells.append(cell)
        rows.append(cells)
    epochs = sorted({(c["fraction"], c["epochs"]) for c in values["cells"]})
    seen = ", ".join(f"{e} epochs at {100 * f:g} %" for f, e in epochs)
    advice = values["recommendation"]
    parts = [
        f"Top-1 on {values['data']['num_test']:,} test images, mean ± standard deviation over "
        f"{len(values['seeds'])} seeds; in brackets the relative gain over {values['reference']} "
        f"with its 95 % interval. Recipe `{values['recipe']['name']}`, {seen}.",
        markdown(["images", *models], rows),
        f"**{advice['headline']}** " + " ".join(advice["sentences"]),
        *(
            f"Gates, {e['model']} at {100 * e['fraction']:g} %: {_course(record, e)}."
            for e in values["gates"]
        ),
        *(
            f"Nonlocality in patches, {e['model']} at {100 * e['fraction']:g} % (a uniform head: "
            f"{e['uniform']:.2f}): {_course(record, e)}."
            for e in values["nonlocality"]
        ),
        f"`{values['command']}`",
    ]
    return "\n\n".join(parts)


def _course(record: Record, entry: Mapping[str, Any]) -> str:
    """First and last value of each layer, and whether it moves as in the ConViT paper.

    There gates fall, GPSA layers grow less local, and plain attention more local (Fig. 5 and 6).
    """
    array = np.nanmean(record.arrays[entry["array"]], axis=2)  # (E, L), averaged over heads
    layers = [f"{a:.2f} to {b:.2f}" for a, b in zip(array[0], array[-1], strict=True)]
    text = ", ".join(f"layer {i + 1} from {text}" for i, text in enumerate(layers))
    gated = [e for e in record.values["gates"] if e["model"] == entry["model"]]
    count = len(gated[0]["layers"]) if gated else len(layers)
    first, last = array[0, :count].mean(), array[-1, :count].mean()
    whose = "the GPSA layers" if gated else "all layers"
    change = "rises" if last > first else "falls"
    claimed = "rises" if gated and not entry["array"].startswith("gates/") else "falls"
    verdict = "as in the paper" if change == claimed else f"where the paper's {claimed}"
    return f"{text}; the mean of {whose} {change}, {first:.2f} to {last:.2f}, {verdict}"


def _along_units(record: Record) -> str:
    """How each unit changes what it is handed, beside the claim of the paper."""
    values = record.values
    name = "high" if record.kind == "fourier" else "variance"
    what = "log amplitude at pi" if record.kind == "fourier" else "variance over space"
    found = values[name]
    rows = [
        [unit, kind, f"{after:.3f}", f"{after - before:+.3f}"]
        for unit, kind, before, after in zip(
            values["units"][1:], values["kind"][1:], found, found[1:], strict=False
        )
    ]
    parts = [markdown(["unit", "kind", what, "change"], rows)]
    for kind, claim in (("attention", "lower"), ("mlp", "raise")):
        changes = [float(row[3]) for row in rows if row[1] == kind]
        if changes:
            as_claimed = sum((change < 0) == (claim == "lower") for change in changes)
            verdict = "agrees" if 2 * as_claimed > len(changes) else "disagrees"
            parts.append(
                f"The paper's claim that {kind} units {claim} it: {as_claimed} of {len(changes)} "
                f"here do, which {verdict}."
            )
    return "\n\n".join(parts)


def _spectra(record: Record) -> str:
    """NEP and APE of several runs, beside the claim of the paper."""
    config = ", ".join(f"{key} {value}" for key, value in record.config.items() if key != "runs")
    return "\n\n".join(
        [
            "Eigenvalues of largest magnitude of the Hessian of NLL + l2 on augmented batches: "
            "the share below 0 and the mean above, ± standard error over mini-batches; in words, "
            f"against {record.values['reference']}. Park & Kim find, early in training, fewer "
            "negative ones with average pooling or locality than with a class token alone, none or "
            "few in a ResNet, and larger positive ones there.",
            markdown(HEAD, rows(record)),
            f"Settings: {config}.",
        ]
    )


def _frequency(record: Record) -> str:
    """Accuracy against the frequency of the noise."""
    values = record.values
    points = list(zip(values["frequencies"], values["accuracy"], strict=True))
    table = [[f"{f:.1f} π", f"{100 * top1:.1f}"] for f, top1 in points]
    clean = f"{100 * values['clean']:.1f} %"
    run = Path(str(record.config.get("subject", ""))).parts[-3:]
    about = (
        f"Top-1 of {'/'.join(run)} on {values['num_images']:,} images with noise of one frequency, "
        f"its root mean square {values['rms']:g} of the pixel range at each; {clean} without noise."
    )
    lost = {
        where: fmean(values["clean"] - top1 for f, top1 in points if inside(f))
        for where, inside in (("low", lambda f: f <= 0.3), ("high", lambda f: f >= 0.7))
    }
    found = (
        f"Low frequencies (up to 0.3 π) cost {100 * lost['low']:.1f} points, high ones (from "
        f"0.7 π) {100 * lost['high']:.1f}. Park & Kim (Fig. 2b): convolutions suffer more from "
        "the high ones, ViTs from the low ones."
    )
    return f"{about}\n\n{markdown(['frequency', 'top-1'], table)}\n\n{found}"


def _values(record: Record) -> str:
    """Any other record: its single numbers."""
    rows = [
        [key, f"{value:.4g}" if isinstance(value, float) else str(value)]
        for key, value in record.values.items()
        if isinstance(value, (int, float, str))
    ]
    lists = [
        [key, ", ".join(f"{v:.3g}" if isinstance(v, float) else str(v) for v in value)]
        for key, value in record.values.items()
        if isinstance(value, list)
        and value
        and all(isinstance(v, (int, float, str)) for v in value)
    ]
    return markdown(["what", "value"], [*rows, *lists])


def _made(record: Record) -> str:
    made = record.made
    versions = made.get("versions", {})
    stack = ", ".join(f"{name} {versions[name]}" for name in ("torch", "timm") if name in versions)
    commit = str(made.get("commit") or "unknown")
    took = "" if record.seconds is None else f", {record.seconds:.0f} s"
    machine = made.get("machine", {})
    return (
        f"<sub>{made.get('time', '')}, commit {commit[:12]}{'+' if commit.endswith('+') else ''}, "
        f"{stack}, {machine.get('cores')} cores {machine.get('system', '')}{took}</sub>"
    )


def results_page(folders: Sequence[Path], figures: Path) -> str:
    """The whole page from folders of records."""
    paths = [path for folder in folders for path in sorted(folder.glob("*.json"))]
    records = in_order([(path.stem, load(path)) for path in paths])
    parts = ["# Results", "Generated from records by `make results`; nobody edits this page."]
    studies = [pair for pair in records if pair[1].kind == "study"]
    if studies:
        parts += ["## What of the papers holds here", verdicts(studies)]
    drawn = _owners(figures, [name for name, _ in records])
    for name, record in records:
        title = f"Benchmark: {name}" if record.kind.startswith("bench-") else name
        parts += [f"## {title}", section(record)]
        for figure in drawn.get(name, []):
            words = figure.stem.removeprefix(f"{name}-").replace("-", " ")
            parts.append(f"![{words}](figures/{figure.name})")
    return "\n\n".join(parts) + "\n"


def _owners(figures: Path, names: Sequence[str]) -> dict[str, list[Path]]:
    """The figures of each record: those that begin with its name, and with no longer one."""
    found: dict[str, list[Path]] = {}
    for figure in sorted(figures.glob("*.png")):
        fitting = [name for name in names if figure.stem.startswith(f"{name}-")]
        if fitting:
            found.setdefault(max(fitting, key=len), []).append(figure)
    return found


if __name__ == "__main__":
    *sources, target = map(Path, sys.argv[1:])
    write_text(target, results_page(sources, target.parent / "figures"))
