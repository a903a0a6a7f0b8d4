"""One table, written for the terminal, Markdown, LaTeX, CSV and the page."""

import csv
import re
from pathlib import Path

import pytest
from jinja2 import Environment, PackageLoader

from benchmarks.tables import bench_tables
from vitascope.figure import Style
from vitascope.record import load
from vitascope.report.page_templates import FILTERS
from vitascope.report.sections.claims import claims_table, tally
from vitascope.report.sections.comparison import accuracy_table, comparison_text, cost_table
from vitascope.report.sections.comparison_record import ComparisonRecord
from vitascope.report.sections.inspection import summary_table
from vitascope.report.sections.models import model_sizes_table
from vitascope.report.sections.study import study_table, study_text
from vitascope.table import Cell, Table, as_csv, as_latex, as_markdown, as_text, row

RECORDS = Path(__file__).parent / "fixtures" / "records"
BENCHMARKS = Path(__file__).parents[1] / "benchmarks" / "records"


def as_html(table: Table) -> str:
    environment = Environment(loader=PackageLoader("vitascope.report"), autoescape=True)
    environment.filters.update(FILTERS)
    return str(environment.get_template("table.html").module.table(table, "title"))


@pytest.fixture(scope="module")
def comparison() -> ComparisonRecord:
    return ComparisonRecord(load(RECORDS / "compare" / "compare"))


def made_up() -> Table:
    cells = [Cell(text="59.0 ± 1.3", note="59.6", bold=True), Cell(text="", note="73.0"), "up"]
    rows = (
        row("convit", cells, note="ConViT-S", style=Style(2, "square", "")),
        row("vit", ["−4.5", "", ""]),
    )
    columns = ("10 %", "all", "Verdict")
    return Table(name="t", title="Top-1", corner="Model", columns=columns, rows=rows)


def test_a_terminal_and_markdown_show_notes_in_brackets():
    assert as_text(made_up()).splitlines() == [
        "Model                                 10 %             all  Verdict",
        "convit (ConViT-S)  59.0 ± 1.3 (paper 59.6)  – (paper 73.0)  up",
        "vit                                   −4.5",
    ]
    assert as_markdown(made_up()).splitlines() == [
        "**Top-1**",
        "",
        "| Model | 10 % | all | Verdict |",
        "|---|---|---|---|",
        "| convit (ConViT-S) | **59.0 ± 1.3** (paper 59.6) | – (paper 73.0) | up |",
        "| vit | −4.5 |  |  |",
    ]


def test_latex_and_csv_have_notes_in_columns_of_their_own():
    head, first, second = csv.reader(as_csv(made_up()).splitlines())
    assert head[:4] == ["Model", "Model (paper)", "10 %", "10 % (paper)"]
    assert head[4:] == ["all", "all (paper)", "Verdict"]
    assert first == ["convit", "ConViT-S", "59.0 ± 1.3", "59.6", "", "73.0", "up"]
    assert second == ["vit", "", "-4.5", "", "", "", ""]
    text = as_latex(made_up())
    assert r"\begin{tabular}{llrrrrl}" in text  # labels and words to the left, numbers to the right
    assert r"convit & ConViT-S & 59.0 $\pm$ 1.3 & 59.6 &  & 73.0 & up \\" in text


def test_the_page_has_signs_bold_words_notes_and_a_dash_for_nothing():
    html = as_html(made_up())
    assert re.search(r'<th scope="row" class="m2"><span class="sign".*■</span> convit', html)
    assert (
        '<td class="number" data-column="10 %"><span class="best">59.0 ± 1.3</span>'
        "<small>paper 59.6</small>" in html
    )
    assert html.count("<span>–</span>") == 3
    assert '<th scope="col" class="number">10 %</th>' in html
    assert '<th scope="col">Verdict</th>' in html


def test_a_comparison_says_the_same_in_terminal_markdown_files_and_page(comparison):
    table = accuracy_table(comparison)
    wanted = ["20 % (229 images)", "all (1,151 images)", "20.9", "40.1", "ahead"]
    for text in (as_markdown(table), as_csv(table), as_html(table), comparison_text(comparison)):
        assert all(words in text for words in wanted)
    found = re.search(r"40\.1.*lead ([+.\d]+) \[.*?\], ahead", as_markdown(table))
    assert float(found[1]) == pytest.approx(40.1 - 20.9, abs=0.11)
    assert 'class="ahead">lead +' in as_html(table)
    assert comparison.values["recommendation"]["headline"] in comparison_text(comparison)
    assert [len(line.cells) for line in cost_table(comparison).rows] == [4, 4]


def test_a_study_says_the_same_in_terminal_and_tables():
    record = load(RECORDS / "study" / "locality-in-training")
    text = study_text(record)
    for item in record.values["tables"]:
        table = study_table(item)
        assert f"{table.title}\n{as_text(table)}" in text
    verdicts = [line.cells[1].text for line in claims_table(record.values["claims"]).rows]
    assert verdicts
    assert all(verdict in text for verdict in verdicts)
    assert text.startswith(f"{tally(verdicts)}.")  # the answer first


def test_the_summary_leaves_out_columns_that_no_instrument_fills():
    records = {name: load(RECORDS / "inside" / name) for name in ("fgsm", "gates")}
    both = summary_table(records)
    assert both.columns == ("What", "Value", "Lowest", "Highest")
    assert [line.label for line in both.rows] == ["gates"] + ["fgsm"] * 5  # as on a page
    alone = summary_table({"fgsm": records["fgsm"]})
    assert alone.columns == ("What", "Value")
    assert "ε 8/255 of the pixel range          22.5 % (lost 2.5)" in as_text(alone)


def test_every_benchmark_has_its_tables():
    found = {
        path.stem: [table.name for table in bench_tables(load(path))]
        for path in sorted(BENCHMARKS.glob("*.json"))
    }
    assert found["gpsa"] == ["gpsa speed", "gpsa memory"]
    assert found["hessian"] == ["hessian speed", "hessian reached"]
    assert found["inspect"] == ["inspect speed", "inspect cost"]


def test_sizes_stand_beside_the_papers():
    counted = {"name": "convit_tiny", "parameters": 5_700_000, "multiply_adds": 1.08e9}
    paper = {"paper_parameters": 6, "paper_flops": 1, "paper_top1": 73.1}
    _, rows = model_sizes_table([counted | paper, counted]).inline()
    assert rows == [
        ["convit_tiny", "5.7M (paper 6M)", "1.08 (paper 1)", "73.1"],
        ["convit_tiny", "5.7M", "1.08", ""],
    ]
