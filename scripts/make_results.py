"""Make `docs/results/` from records: what was measured, when, and how to reproduce it.

`make results` runs it: `PYTHONPATH=. python scripts/make_results.py FOLDER ... docs/results`. Each
record becomes a page. The index lists studies first, those on real images before those on digits,
in the papers' order, then the rest by file name. A figure whose name starts with a record's name
(``figures/digits-gates.png`` for ``digits.json``) is shown on its page. The tables are those that
the report and the terminal show. The findings of the README are written, too.
"""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

import numpy as np
from findings import draw_leads, findings_in_words, in_plain_words, inside_table, note_on_units

from benchmarks.tables import ABOUT_RATIOS, bench_tables
from vitascope.papers.catalog import catalog
from vitascope.record import Record, load, write_text
from vitascope.report.sections.claims import (
    CountedClaim,
    claim_in_words,
    claims_table,
    correction,
    standing,
    tally,
    tested,
    with_authors,
)
from vitascope.report.sections.comparison import accuracy_table
from vitascope.report.sections.comparison_record import ComparisonRecord
from vitascope.report.sections.spectra import spectra_table
from vitascope.report.sections.study import VERDICT_MARKS, runs_in_words, study_table
from vitascope.table import Table, as_markdown, row

__all__ = ["readme_with_findings", "results_pages", "section"]

# kinds of records that have a page of their own
ELSEWHERE = {"pretrained", "simulation", "finetuning"}
README = Path(__file__).parents[1] / "README.md"
LEADS = "leads.png"  # of all studies on real images
MARKS = ("<!-- findings, by make results -->", "<!-- end of findings -->")


def section(record: Record) -> str:
    """One record in words and tables."""
    writers = {
        "compare": _comparison,
        "fourier": _along_units,
        "variance": _along_units,
        "spectra": _spectra,
        "frequency": _frequency,
        "study": _study,
    }
    if record.kind.startswith("bench-"):
        body = _benchmark(record)
    else:
        body = writers.get(record.kind, _values)(record)
    return f"{body}\n\n{_made(record)}"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table without a title."""
    corner, *columns = head
    lines = tuple(row(label, cells) for label, *cells in rows)
    return as_markdown(Table(name="", title="", corner=corner, columns=tuple(columns), rows=lines))


_UNPAIRED = (
    "This record does not keep which images were right. The intervals treat the test images of two "
    "models as different, and no model is recommended."
)


def _comparison(record: Record) -> str:
    values = record.values
    epochs = sorted({(c["fraction"], c["epochs"]) for c in values["cells"]})
    seen = ", ".join(f"{e} epochs at {100 * f:g} %" for f, e in epochs)
    advice = values["recommendation"]
    answered = any(name.startswith("correct/") for name in record.arrays)
    parts = [
        f"Top-1 on {values['data']['num_test']:,} test images, mean ± standard deviation over "
        f"{len(values['seeds'])} seeds; in brackets the lead over {values['reference']}, in points "
        f"with its 95 % interval. Recipe `{values['recipe']['name']}`, {seen}.",
        as_markdown(accuracy_table(ComparisonRecord(record))),
        in_plain_words(f"**{advice['headline']}** {' '.join(advice['sentences'])}")
        if answered
        else _UNPAIRED,
        _courses(record, "gates", "Gates"),
        _courses(record, "nonlocality", "Nonlocality in patches"),
        f"`{values['command']}`",
    ]
    return "\n\n".join(filter(None, parts))


def _courses(record: Record, kind: str, title: str) -> str:
    """A table of the first and last value of each layer, averaged over heads, model by model."""
    rows = []
    for entry in record.values[kind]:
        array = np.nanmean(record.arrays[entry["array"]], axis=2)  # (epochs, layers)
        layers = [f"{a:.2f} to {b:.2f}" for a, b in zip(array[0], array[-1], strict=True)]
        name = f"{entry['model']}, {100 * entry['fraction']:g} %"
        uniform = [f"{entry['uniform']:.2f}"] if "uniform" in entry else []
        rows.append([name, *uniform, *layers])
    if not rows:
        return ""
    width = max(map(len, rows))
    heads = ["uniform head"] if "uniform" in record.values[kind][0] else []
    columns = ["model", *heads, *(f"layer {i}" for i in range(1, width - len(heads)))]
    padded = [[*cells, *[""] * (width - len(cells))] for cells in rows]
    return f"**{title}, from the first to the last epoch**\n\n{_table(columns, padded)}"


def _along_units(record: Record) -> str:
    """How each unit changes what it is handed, beside the claim of the paper."""
    values = record.values
    name = "high" if record.kind == "fourier" else "variance"
    what = "Log amplitude at π" if record.kind == "fourier" else "Variance over space"
    found = values[name]
    rows = [
        [unit, kind, f"{after:.3f}", f"{after - before:+.3f}"]
        for unit, kind, before, after in zip(
            values["units"][1:], values["kind"][1:], found, found[1:], strict=False
        )
    ]
    parts = [_table(["Unit", "Kind", what, "Change"], rows)]
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
            as_markdown(spectra_table(record)),
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
    return f"{about}\n\n{_table(['Frequency', 'Top-1'], table)}\n\n{found}"


def _benchmark(record: Record) -> str:
    """Speed, memory, rates, accuracy and cost: what the record holds."""
    parts = [ABOUT_RATIOS, *map(as_markdown, bench_tables(record))]
    for what, counts in record.values.get("products", {}).items():
        parts.append(
            f"Products of one batch after the other, {what}: {', '.join(map(str, counts))}."
        )
    config = ", ".join(f"{key} {value}" for key, value in record.config.items())
    return "\n\n".join([*parts, f"Settings: {config}."])


def _study(record: Record) -> str:
    """Tables with the paper's numbers beside ours, and the verdicts."""
    values = record.values
    covers = ", ".join(values["covers"])
    studies = catalog()
    title = studies[values["study"]].title if values["study"] in studies else values["title"]
    about = (
        f"**{title}** {covers}. {claim_in_words(covers, values['claim'])} "
        f"Here: {values['scale']} scale, {Path(values['data']).name}, "
        f"{len(values['seeds'])} seeds, {runs_in_words(values)}; mean ± standard deviation."
    )
    about = f"{about} {note_on_units(record)}".strip()
    tables = [*map(study_table, values["tables"]), claims_table(values["claims"])]
    claims = list(map(tested, values["claims"]))
    counted = f"{tally([claim.verdict for claim in claims])}. {correction(claims)}".strip()
    return "\n\n".join([about, *map(as_markdown, tables), f"{counted} `{values['command']}`"])


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
    return _table(["What", "Value"], [*rows, *lists])


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


def _in_order(records: Sequence[tuple[str, Record]]) -> list[tuple[str, Record]]:
    """Studies in the papers' order and before the rest, which stays as it is."""
    studies = [pair for pair in records if pair[1].kind == "study"]
    studies.sort(key=lambda pair: (_on_digits(pair[1]), pair[1].values.get("order") or 0, pair[0]))
    return [*studies, *(pair for pair in records if pair[1].kind != "study")]


def _on_digits(study: Record) -> bool:
    return bool(study.values["data"] == "digits")


def _overview(studies: Sequence[tuple[str, Record]]) -> str:
    """One line per study: what it covers, on what, how many of the paper's claims are seen."""
    every = [tested(claim) for _, record in studies for claim in record.values["claims"]]
    shown = [verdict for verdict in VERDICT_MARKS if any(c.verdict == verdict for c in every)]
    rows = []
    for name, record in studies:
        counts = Counter(claim["verdict"] for claim in record.values["claims"])
        images = Path(str(record.values["data"])).name
        numbers = [str(counts[verdict] or "") for verdict in shown]
        rows.append([f"[{name}]({name}.md)", ", ".join(record.values["covers"]), images, *numbers])
    scales = sorted({str(record.values["scale"]) for _, record in studies})
    hours = sum(record.values["training_seconds"] for _, record in studies) / 3600
    names = {record.values["study"] for _, record in studies}
    again = len(studies) - len(names)
    more = f", {again} of them on other images too," if again else ""
    counted = f"{tally([claim.verdict for claim in every])}. {correction(every)}".strip()
    asked = "One study" if len(names) == 1 else f"{len(names)} studies"
    words = (
        f"{asked}{more} at the {' and '.join(scales)} scale: {counted} Each study's trainings, "
        "counted for that study alone although studies share runs, took "
        f"{hours:.1f} hours of one core on a machine that did other work, too."
    )
    marks = [verdict.capitalize() for verdict in shown]
    table = _table(["Study", "Covers", "Images", *marks], rows)
    return "\n\n".join([words, _papers(every, shown), table])


def _papers(claims: Sequence[CountedClaim], shown: Sequence[str]) -> str:
    """One line a paper: its verdicts alone, and in brackets those that the correction leaves."""
    stand = standing(claims)
    known = [claim.p_value is not None for claim in claims]
    rows = []
    for paper in dict.fromkeys(claim.paper for claim in claims):
        mine = [place for place, c in enumerate(claims) if c.paper == paper]
        alone = Counter(claims[place].verdict for place in mine)
        left = Counter(claims[place].verdict for place in mine if stand[place])
        corrected = any(known[place] for place in mine)
        numbers = [
            f"{alone[v]} ({left[v]})"
            if corrected and v in ("agrees", "disagrees")
            else f"{alone[v]}"
            for v in shown
        ]
        rows.append([paper, str(len(mine)), *numbers])
    beside = " (corrected)" if any(known) else ""
    marks = [v.capitalize() + beside * (v in ("agrees", "disagrees")) for v in shown]
    return _table(["Paper", "Claims", *marks], rows)


NOTE = """Every claim of a paper is tested on networks that are far smaller than the paper's, on \
smaller images and in shorter trainings. A claim that disagrees says where it stops holding at \
this size; it does not say that the paper is wrong. [The words of a verdict](../statistics.md) are \
explained on one page. If 40 claims had no effect behind them, about one would agree and one \
disagree by chance. The numbers in brackets, "(corrected)", count the verdicts that remain \
significant after correcting for multiple comparisons."""


def results_pages(folders: Sequence[Path], figures: Path) -> dict[str, str]:
    """The index and a page for each record, by file name."""
    paths = [path for folder in folders for path in sorted(folder.glob("*.json"))]
    loaded = [(path.stem, load(path)) for path in paths]
    records = _in_order([pair for pair in loaded if pair[1].kind not in ELSEWHERE])
    studies = [pair for pair in records if pair[1].kind == "study"]
    parts = ["# Results", "`make results` writes these pages from the records.", NOTE]
    for title, on_digits in (("real images", False), ("digits", True)):
        mine = [pair for pair in studies if _on_digits(pair[1]) == on_digits]
        if not mine:
            continue
        parts.append(f"## What holds on {title}")
        if not on_digits and (figures / LEADS).exists():  # of our own records
            parts.append(shown_findings([record for _, record in mine]))
        parts.append(_overview(mine))
    rest = [name for name, record in records if record.kind != "study"]
    if rest:
        rows = [
            [f"[{_title(name, record)}]({name}.md)"] for name, record in records if name in rest
        ]
        parts += ["## Comparisons, benchmarks and single measurements"]
        parts += ["\n".join(f"- {cell}" for (cell,) in rows)]
    names = "\n".join(name for name, _ in records)
    parts.append(f"```{{toctree}}\n:hidden:\n\n{names}\n```")
    drawn = _owners(figures, [name for name, _ in records])
    made = {"index.md": "\n\n".join(parts)}
    for name, record in records:
        made[f"{name}.md"] = _page(name, record, drawn.get(name, []))
    return {name: f"{with_authors(text)}\n" for name, text in made.items()}


def _title(name: str, record: Record) -> str:
    """The heading of a record's page."""
    if record.kind.startswith("bench-"):
        return f"Benchmark: {name}"
    kinds = {"study": "Study", "compare": "Comparison"}
    return f"{kinds.get(record.kind, 'Measurement')}: {name}"


def _page(name: str, record: Record, figures: Sequence[Path]) -> str:
    """The page of one record with its figures."""
    parts = [f"# {_title(name, record)}", section(record)]
    captions = {item["name"]: item for item in record.values.get("figures", ())}
    for figure in figures:
        own = figure.stem.removeprefix(f"{name}-")
        caption = captions.get(own, {"title": own.replace("-", " "), "reading": ""})
        parts.append(f"![{caption['title']}](../figures/{figure.name})")
        if caption["reading"]:
            parts.append(f"<sub>{caption['title']}. {caption['reading']}</sub>")
    return "\n\n".join(parts)


def _owners(figures: Path, names: Sequence[str]) -> dict[str, list[Path]]:
    """The figures of each record: those that begin with its name, and with no longer one."""
    found: dict[str, list[Path]] = {}
    for figure in sorted(figures.glob("*.png")):
        fitting = [name for name in names if figure.stem.startswith(f"{name}-")]
        if fitting:
            found.setdefault(max(fitting, key=len), []).append(figure)
    return found


def readme_with_findings(readme: str, studies: Sequence[Record]) -> str:
    """The README with its findings between the two marks."""
    start, rest = readme.split(MARKS[0])
    real = [record for record in studies if not _on_digits(record)]
    text = f"{findings_in_words(real)}\n\n![{ALT}](docs/figures/{LEADS})"
    return f"{start}{MARKS[0]}\n{text}\n{MARKS[1]}{rest.split(MARKS[1])[1]}"


ALT = "Leads in accuracy on CIFAR-10 with their intervals: ConViT, kinds of locality, other changes"


def shown_findings(studies: Sequence[Record]) -> str:
    """The figure of the leads in accuracy, and a table of what was seen inside the networks."""
    return (
        f"![{ALT}](../figures/{LEADS})\n\n### Inside the networks\n\n"
        "A positive contrast supports the claim. A verdict in brackets is not significant after "
        f"correcting for multiple comparisons.\n\n{inside_table(studies)}"
    )


if __name__ == "__main__":
    *sources, target = map(Path, sys.argv[1:])
    found = [load(path) for folder in sources for path in sorted(folder.glob("*.json"))]
    studied = [record for record in found if record.kind == "study"]
    figures = target.parent / "figures"
    draw_leads([record for record in studied if not _on_digits(record)], figures / LEADS)
    pages = results_pages(sources, figures)
    for old in target.glob("*.md"):
        if old.name not in pages:
            old.unlink()
    for name, text in pages.items():
        write_text(target / name, text)
    write_text(README, readme_with_findings(README.read_text(), studied))
