"""Every study of the papers runs, small, and leaves a record of tables, claims and figures."""

import json
import math

import numpy as np
import pytest
from scipy.stats import spearmanr

from slow_marks import slow_if
from vitascope import record
from vitascope.figure import Dots, Lines, restored
from vitascope.papers.answer import answer, gathered
from vitascope.papers.catalog import catalog
from vitascope.papers.scale import SMOKE
from vitascope.runs.executor import Engine

STUDIES = catalog()
# Those that take longest; what they read is read by others, too, or in test_curvature.py.
LONG = {
    "ablation",
    "alternet",
    "augmentation",
    "blur",
    "broadcasting-hierarchical",
    "broadcasting-places",
    "broadcasting-robustness",
    "broadcasting-small-images",
    "build-up",
    "convexity",
    "distillation",
    "ensembling",
    "fine-grid-augmentation",
    "fine-grid-images",
    "fine-grid-larger",
    "fine-grid-longer",
    "frequencies-longer",
    "gating",
    "heads",
    "landscape",
    "large-data",
    "large-models",
    "locality-dial",
    "locality-in-training",
    "locality-strength",
    "long-training",
    "masking",
    "overfitting",
    "pooling",
    "sam",
    "sample-efficiency",
    "sizes",
    "stages",
}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all: what studies share is trained once."""
    return tmp_path_factory.mktemp("studies")


def finite(values) -> bool:
    return all(math.isfinite(v) for v in values if v is not None)


def has_numbers(contrast, values) -> bool:
    """Whether all its cells have a number; a loss may be infinite, or its rise not above zero."""
    table = next(table for table in values["tables"] if table["name"] == contrast.table.name)
    means = {
        (row["label"], column): cell["mean"]
        for row in table["rows"]
        for column, cell in zip(table["columns"], row["cells"], strict=True)
    }
    numbers = [means[cell] for cell in contrast.cells]
    return all(n is not None and (n > 0 or not table["log"]) for n in numbers)


def check_table(plan, table):
    assert plan.columns == table["columns"]
    assert plan.rows == [row["label"] for row in table["rows"]]
    full = []
    for row in table["rows"]:
        for wanted, cell in zip(plan.row(row["label"]), row["cells"], strict=True):
            where = f"{table['name']}: {row['label']}"
            # a function may find nothing of its kind, and a spectrum no positive eigenvalue
            key = wanted and wanted.measurement.key
            sure = isinstance(key, str) and key != "ape"
            expected = {0} if wanted is None else {1} if sure else {0, 1}
            assert len(cell["ours"]) in expected, where
            assert finite([*cell["ours"], cell["mean"], cell["paper"]]), where
            if table["accuracy"] and cell["ours"]:
                assert -100 <= cell["mean"] <= 100, where
        full.append([bool(cell["ours"]) for cell in row["cells"]])
    assert all(map(any, full)), f"{table['name']} has an empty row"
    assert all(map(any, zip(*full, strict=True))), f"{table['name']} has an empty column"


def check_lines(panel):
    assert panel.series, panel.title
    for line in panel.series:
        assert len(line.x) == len(line.y), line.label
        assert finite([*line.x, *line.y, *(line.low or []), *(line.high or [])]), line.label
        for bound in (line.low, line.high):
            assert bound is None or len(bound) == len(line.x), line.label
        if panel.x_log:
            assert all(v > 0 for v in line.x), line.label
        if panel.y_log:
            assert all(v is None or v > 0 for v in line.y), line.label
    shown = [value for line in panel.series for value in line.y if value is not None]
    return len(shown)  # a line may be empty where there is no such eigenvalue


def check_dots(panel):
    for line in panel.series:
        assert len(line.values) == len(panel.groups), line.label
        assert all(finite(group) for group in line.values), line.label
        assert line.paper is None or len(line.paper) == len(panel.groups)
    return sum(len(group) for line in panel.series for group in line.values)


def check_array(panel):
    photographs = getattr(panel, "photographs", None)
    for values in (panel.values, photographs):
        assert values is None or not np.isinf(values).any(), panel.title  # NaN is an empty place
    shown = panel.values if panel.values.size else photographs  # a photograph alone
    assert np.isfinite(shown).any(), panel.title
    return shown.size


def check_samples(plan, results):
    """A number that names its sample is the statistic of what was kept."""
    for cell in plan.cells():
        sample, values, read = results.sample(cell), results.values(cell), cell.measurement
        assert sample is not None or read.key != "top1"
        if sample is None or not values:
            continue
        of = {"images": np.mean, "points": lambda points: spearmanr(*points).statistic}
        statistic = of.get(read.sample.kind) or read.sample.statistic
        found = [read.factor * statistic(row) for row in sample]
        assert found == pytest.approx(values, rel=1e-4, abs=1e-4), (read.reading.name, read.key)


CHECKS = {Lines: check_lines, Dots: check_dots}


@pytest.mark.parametrize("name", slow_if(STUDIES, LONG))
def test_every_study_runs_and_leaves_a_whole_record(name, out):
    study = STUDIES[name]
    answer(study, SMOKE, out, Engine(quiet=True))
    found = record.load(out / name)
    values, plan = found.values, study.plan(SMOKE)
    assert found.kind == "study"
    assert (values["study"], values["scale"], values["seeds"]) == (name, "smoke", [0])
    assert values["covers"] == list(study.covers)
    assert values["command"].startswith(f"vitascope study {name} --scale smoke")
    assert [table["name"] for table in values["tables"]] == [table.name for table in plan.tables]
    for wanted, table in zip(plan.tables, values["tables"], strict=True):
        check_table(wanted, table)
    assert [claim["text"] for claim in values["claims"]] == [claim.text for claim in plan.claims]
    check_samples(plan, gathered(plan, SMOKE, out))
    for stated, claim in zip(plan.claims, values["claims"], strict=True):
        assert claim["verdict"] == "undecided"  # one seed decides nothing
        assert claim["detectable"] is None
        measured = has_numbers(plan.contrast(stated), values)
        assert claim["reading"].startswith("Measured ") == measured, claim
        assert claim["reading"].endswith("."), claim
    assert bool(values["figures"]) == bool(plan.figures)
    assert len({figure["name"] for figure in values["figures"]}) == len(values["figures"])
    for figure in (restored(item, found.arrays) for item in values["figures"]):
        assert figure.title
        assert figure.reading.endswith("."), figure.name
        assert figure.panels, figure.name
        drawn = [CHECKS.get(type(panel), check_array)(panel) for panel in figure.panels]
        assert sum(drawn) > 0, f"{figure.name} shows nothing"
    used = {panel.get("array") for figure in values["figures"] for panel in figure["panels"]}
    used |= {f"{array}/photographs" for array in used}
    correct = {f"correct/{key}" for key in plan.wanted()}
    assert correct <= set(found.arrays)
    assert set(found.arrays) - correct <= used, "arrays that no figure shows"
    json.dumps(values, allow_nan=False)
