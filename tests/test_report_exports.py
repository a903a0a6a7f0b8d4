"""What a report shows as files: figures with their fonts, tables that stay tables."""

import csv
import re
import xml.etree.ElementTree as ElementTree

import pytest

from report_making import made_up, report_of
from report_records import EVIL, made_study, write_inspection, write_run
from vitascope.commands import main
from vitascope.report.exports import write_figures, write_tables
from vitascope.report.figures.paper_renderer import draw_figure
from vitascope.table import Table, as_csv, as_latex, as_markdown, row


def table_of(*words: str) -> Table:
    rows = (row(words[0], words[1:]),)
    columns = tuple(f"column {i}" for i in range(len(words) - 1))
    return Table(name="t", title="A & B", corner="name", columns=columns, rows=rows)


def test_every_figure_of_the_page_is_written_in_every_format(tmp_path):
    made_study().save(tmp_path / "s" / "one")
    write_run(tmp_path / "r")
    report = report_of(tmp_path)
    written = write_figures(report, tmp_path / "out", ("png", "svg"))
    number = sum(len(section.figures) for section in report.sections)
    assert len(written) == len(set(written)) == 2 * number
    for path in written:
        start = path.read_bytes()[:8]
        assert start == b"\x89PNG\r\n\x1a\n" if path.suffix == ".png" else b"<?xml" in start


def test_every_instrument_is_drawn_for_papers_as_on_the_page(tmp_path):
    write_inspection(tmp_path / "i", "convit_micro", layers=2)
    (section,) = report_of(tmp_path).sections
    for figure in section.figures:
        drawing = draw_figure(figure)
        for axis, panel in zip(drawing.axes, figure.panels, strict=False):
            lines = [line.label for line in getattr(panel, "series", ()) if line.label]
            said = {text.get_text() for text in axis.texts}
            legend = axis.get_legend()
            said |= {text.get_text() for text in legend.get_texts()} if legend else set()
            assert set(lines) <= said, figure.name


def test_a_pdf_embeds_every_font_and_an_svg_needs_none(tmp_path):
    made_study().save(tmp_path / "one")
    for path in write_figures(report_of(tmp_path), tmp_path, ("pdf", "svg")):
        content = path.read_bytes()
        if path.suffix == ".pdf":
            descriptors = re.findall(rb"/Type /FontDescriptor.*?endobj", content, re.DOTALL)
            assert descriptors
            assert all(b"/FontFile2" in descriptor for descriptor in descriptors)  # TrueType
        else:
            tags = {tag.tag.split("}")[1] for tag in ElementTree.fromstring(content).iter()}
            assert "text" not in tags


def test_the_same_record_gives_the_same_file(tmp_path):
    made_study().save(tmp_path / "one")
    report = report_of(tmp_path)
    first, again = (write_figures(report, tmp_path / name, ("svg",)) for name in "ab")
    assert [p.read_bytes() for p in first] == [p.read_bytes() for p in again]


def test_names_from_outside_are_no_paths_and_no_mathematics(tmp_path):
    record = made_study(words=" $x_1$ ../../" + EVIL)
    record.values["figures"][0]["name"] = "../../evil"
    record.save(tmp_path / "in" / "one")
    report = report_of(tmp_path / "in")
    written = write_figures(report, tmp_path / "out", ("png",))
    written += write_tables(report, tmp_path / "out", ("csv",))
    assert all(path.parent.parent == tmp_path / "out" for path in written)
    assert (tmp_path / "out" / "figures" / "evil.png").exists()


def test_tables_of_every_section_are_written(tmp_path):
    made_up().save(tmp_path / "c" / "compare")
    made_study().save(tmp_path / "s" / "one")
    written = write_tables(report_of(tmp_path), tmp_path / "out", ("md", "tex", "csv"))
    assert {path.name for path in written} == {
        f"{name}.{kind}"
        for name in ("compare-accuracy", "compare-cost", "one-top1", "one-claims")
        for kind in ("md", "tex", "csv")
    }


def test_a_csv_holds_ours_and_the_papers_numbers_in_columns_of_their_own(tmp_path):
    made_study().save(tmp_path / "one")
    write_tables(report_of(tmp_path), tmp_path, ("csv",))
    with open(tmp_path / "tables" / "top1.csv", encoding="utf-8", newline="") as stream:
        head, first, *_ = csv.reader(stream)
    assert head == ["Model", "Model (paper)", "5 %", "5 % (paper)", "all"]
    assert first == ["convit_micro", "ConViT-S", "42.0 ± 1.4", "47.8", "–"]


@pytest.mark.parametrize("cell", ["=1+1", "@SUM(A1)", "+cmd|x", "-2+3", "\t=1", " =1"])
def test_a_csv_cell_from_outside_is_never_a_formula(cell):
    line = as_csv(table_of(cell, "-1.5", "+0.3")).splitlines()[-1]
    read = next(csv.reader([as_csv(table_of(cell, "-1.5", "+0.3")).split("\n", 1)[1]]))
    assert read == [f"'{cell}", "-1.5", "+0.3"], line


def test_latex_is_escaped_and_ruled():
    text = as_latex(table_of(r"a_b \ {x} ~^ 50 % $ # & <i>", "1.0 ± 0.1", "−2"))
    assert (
        r"a\_b \textbackslash{} \{x\} \textasciitilde{}\textasciicircum{} 50 \% \$ \# \& " in text
    )
    assert r"\textless{}i\textgreater{} & 1.0 $\pm$ 0.1 & $-$2 \\" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]
    assert r"\caption{A \& B}" in text


def test_markdown_cells_end_where_they_should():
    text = as_markdown(table_of("a|b\nc", EVIL, "1"))
    assert text.splitlines()[-1] == r"| a\|b c | &lt;img src=x onerror=alert(1)&gt; | 1 |"


def test_the_command_writes_what_it_is_asked_for(tmp_path, capsys):
    folder = write_run(tmp_path / "a")
    assert main(["report", str(folder), "--formats", "svg", "--tables", "tex", "md"]) == 0
    assert [path.name for path in (folder / "figures").iterdir()] == ["learning.svg"]
    assert sorted(path.name for path in (folder / "tables").iterdir()) == ["runs.md", "runs.tex"]
    assert "2 tables in " in capsys.readouterr().out
