"""Every study of the papers runs, small, and leaves a record of tables, claims and figures."""

import json
import math

import numpy as np
import pytest

from vitascope import record
from vitascope.studies.grid.executor import Engine
from vitascope.studies.papers.answer import answer
from vitascope.studies.papers.catalog import catalog
from vitascope.studies.papers.scale import SMOKE

STUDIES = catalog()
VERDICTS = {"agrees", "disagrees", "within noise"}


@pytest.fixture(scope="module")
def out(tmp_path_factory):
    """One folder for all: what studies share is trained once."""
    return tmp_path_factory.mktemp("studies")


def finite(values) -> bool:
    return all(math.isfinite(v) for v in values if v is not None)


def check_table(plan, table):
    assert list(plan.columns) == table["columns"]
    assert len(plan.rows) == len(table["rows"])
    full = []
    for wanted, row in zip(plan.rows, table["rows"], strict=True):
        assert wanted.label == row["label"]
        for ask, cell in zip(wanted.cells, row["cells"], strict=True):
            where = f"{table['name']}: {row['label']}"
            # a function may find nothing of its kind, and a spectrum no positive eigenvalue
            sure = ask is not None and isinstance(ask.key, str) and ask.key != "ape"
            expected = {0} if ask is None else {1} if sure else {0, 1}
            assert len(cell["ours"]) in expected, where
            assert finite([*cell["ours"], cell["mean"], cell["paper"]]), where
            if table["accuracy"] and cell["ours"]:
                assert -100 <= cell["mean"] <= 100, where
        full.append([bool(cell["ours"]) for cell in row["cells"]])
    assert all(map(any, full)), f"{table['name']} has an empty row"
    assert all(map(any, zip(*full, strict=True))), f"{table['name']} has an empty column"


def check_lines(panel):
    assert panel["series"], panel["title"]
    points = 0
    for series in panel["series"]:
        x, y = series["x"], series["y"]
        assert len(x) == len(y), series["label"]
        assert finite([*x, *y, *(series["low"] or []), *(series["high"] or [])]), series["label"]
        points += sum(v is not None for v in y)  # none where there is no such eigenvalue
        for bound in (series["low"], series["high"]):
            assert bound is None or len(bound) == len(x), series["label"]
        if panel["x_log"]:
            assert all(v > 0 for v in x), series["label"]
        if panel["y_log"]:
            assert all(v is None or v > 0 for v in y), series["label"]
    return points


def check_dots(panel):
    for series in panel["series"]:
        assert len(series["values"]) == len(panel["groups"]), series["label"]
        assert all(finite(group) for group in series["values"]), series["label"]
        assert series["paper"] is None or len(series["paper"]) == len(panel["groups"])
    return sum(len(group) for series in panel["series"] for group in series["values"])


def check_array(panel, arrays):
    array = arrays[panel["array"]]
    assert array.shape[:2] == (len(panel["rows"]), len(panel["columns"])), panel["title"]
    assert array.ndim == {"heat": 2, "maps": 4}[panel["kind"]], panel["title"]
    assert np.isfinite(array).any(), panel["title"]
    assert not np.isinf(array).any(), panel["title"]  # NaN is an empty place
    return array.size


@pytest.mark.parametrize("name", STUDIES)
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
    for claim in values["claims"]:
        assert claim["verdict"] in VERDICTS
        assert claim["reading"].startswith("Measured "), claim
        assert claim["reading"].endswith("."), claim
    assert bool(values["figures"]) == bool(plan.figures)
    assert len({figure["name"] for figure in values["figures"]}) == len(values["figures"])
    for figure in values["figures"]:
        assert figure["title"]
        assert figure["reading"].endswith("."), figure["name"]
        assert figure["panels"], figure["name"]
        drawn = [
            check_lines(panel) if panel["kind"] == "lines"
            else check_dots(panel) if panel["kind"] == "dots"
            else check_array(panel, found.arrays)
            for panel in figure["panels"]
        ]  # fmt: skip
        assert sum(drawn) > 0, f"{figure['name']} shows nothing"
    used = {panel.get("array") for figure in values["figures"] for panel in figure["panels"]}
    correct = {f"correct/{key}" for key in plan.wanted()}
    assert correct <= set(found.arrays)
    assert set(found.arrays) - correct <= used, "arrays that no figure shows"
    json.dumps(values, allow_nan=False)
