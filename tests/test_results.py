"""The results pages are made from records alone."""

from dataclasses import replace

import findings
import numpy as np
import pytest
from make_results import README, readme_with_findings, results_pages, section

from report_making import made_up
from report_records import made_study
from vitascope.record import Record, load


def test_a_comparison_shows_its_table_verdicts_and_command(tmp_path):
    unpaired = made_up()
    correct = {"correct/vit_micro/1": np.ones((2, 3), dtype=bool)}
    record = replace(unpaired, arrays={**unpaired.arrays, **correct})
    text = section(record)
    headline = record.values["recommendation"]["headline"]
    assert headline in text
    assert headline not in section(unpaired)  # of a rule that took the test images as different
    assert record.values["command"] in text
    assert all(f" {model['label']} |" in text for model in record.values["models"])


def test_every_record_of_the_folder_is_a_page_with_its_figures(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "b-gates-over-time.png").write_bytes(b"")
    Record(kind="bench-gpsa", values={"speed": [["x / y", 1.0, 2.0, 3.0]], "memory": []}).save(
        tmp_path / "records" / "a"
    )
    Record(kind="odd", values={"depth": 3, "layers": ["p|q"]}).save(tmp_path / "records" / "b")
    pages = results_pages([tmp_path / "records"], tmp_path / "figures")
    assert sorted(pages) == ["a.md", "b.md", "index.md"]
    assert pages["a.md"].startswith("# Benchmark: a\n")
    assert "| x / y | 2.00 | 1.00 to 3.00 |" in pages["a.md"]
    assert "![gates over time](../figures/b-gates-over-time.png)" in pages["b.md"]
    assert "p\\|q" in pages["b.md"]
    assert "[Benchmark: a](a.md)" in pages["index.md"]


def test_memory_is_shown_beside_the_peer_that_the_record_names():
    values = {"speed": [], "memory": [["8 x 8, k = 3", 2_000_000, 8_000_000]]}
    record = Record(kind="bench-neighborhood", values=values, config={"peer": "dense attention"})
    text = section(record)
    assert "| Grid | Our layer | dense attention | Ratio |" in text
    assert "| 8 x 8, k = 3 | 2.0 MB | 8.0 MB | 0.250 |" in text


def test_a_claim_about_units_is_counted():
    values = {
        "units": ["stem", "a.attn", "a.mlp", "b.attn", "b.mlp"],
        "kind": ["stem", "attention", "mlp", "attention", "mlp"],
        "variance": [1.0, 0.5, 0.9, 0.4, 0.3],
    }
    text = section(Record(kind="variance", values=values))
    assert "attention units lower it: 2 of 2 here do, which agrees" in text
    assert "mlp units raise it: 1 of 2 here do, which disagrees" in text
    assert "| b.mlp | mlp | 0.300 | -0.100 |" in text


def test_a_benchmark_of_spectra_says_what_its_time_bought():
    values = {
        "speed": [["five eigenvalues to 1 % / peer", 5.0, 6.0, 7.0]],
        "reached": [["ours, 1 %", 0.0007, 0.001, 22, 4.66]],
        "products": {"from the batch before": [22, 19]},
    }
    text = section(Record(kind="bench-hessian", values=values))
    assert "| five eigenvalues to 1 % / peer | 6.00 | 5.00 to 7.00 |" in text
    assert "| ours, 1 % | 0.07 % | 0.1 % | 22 | 4.7 |" in text
    assert "from the batch before: 22, 19." in text


def ordered(name: str, order: int, verdicts: tuple[str, ...]) -> Record:
    study = made_study(name, verdicts)
    return replace(study, values={**study.values, "order": order, "training_seconds": 1800.0})


def test_studies_come_first_in_the_papers_order_with_their_verdicts_counted(tmp_path):
    ordered("late", 7, ("agrees", "undecided")).save(tmp_path / "records" / "late")
    ordered("zeroth", 0, ("disagrees", "agrees", "agrees")).save(tmp_path / "records" / "zeroth")
    Record(kind="odd", values={"depth": 3}).save(tmp_path / "records" / "a")
    pages = results_pages([tmp_path / "records"], tmp_path)
    page = pages["index.md"]
    assert "3 of 5 claims agree, 1 disagrees and 1 is undecided" in page
    assert "1.0 hours of one core" in page
    table = [line for line in page.splitlines() if line.startswith("| [")]
    assert [line.split("|")[4:7] for line in table] == [[" 2 ", " 1 ", "  "], [" 1 ", "  ", " 1 "]]
    assert {line.split("|")[3] for line in table} == {" digits "}
    assert page.index("\nzeroth\n") < page.index("\nlate\n") < page.index("\na\n")  # contents
    assert {"zeroth.md", "late.md", "a.md"} < set(pages)


def test_one_study_on_two_sets_of_images_is_told_apart_by_its_file(tmp_path):
    ordered("sizes", 1, ("agrees",)).save(tmp_path / "records" / "sizes")
    other = ordered("sizes", 1, ("disagrees",))
    values = {**other.values, "data": "some/where/photos"}
    replace(other, values=values).save(tmp_path / "records" / "sizes-photos")
    page = results_pages([tmp_path / "records"], tmp_path)["index.md"]
    real, digits = page.index("## What holds on real images"), page.index("## What holds on digits")
    assert page.index("One study at the laptop scale: The one claim disagrees") > real
    assert page.index("One study at the laptop scale: The one claim agrees") > digits > real
    assert page.index("\nsizes-photos\n") < page.index("\nsizes\n")
    table = [line.split("|")[1:4:2] for line in page.splitlines() if line.startswith("| [")]
    assert table == [
        [" [sizes-photos](sizes-photos.md) ", " photos "],
        [" [sizes](sizes.md) ", " digits "],
    ]


def test_a_figure_belongs_to_the_longest_name_that_it_begins_with(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a-b-curve.png").write_bytes(b"")
    for name in ("a", "a-b"):
        Record(kind="odd", values={"depth": 3}).save(tmp_path / "records" / name)
    pages = results_pages([tmp_path / "records"], tmp_path / "figures")
    assert "![curve](../figures/a-b-curve.png)" in pages["a-b.md"]
    assert "a-b-curve.png" not in pages["a.md"]


def test_a_studys_figure_has_the_caption_of_its_record(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "sizes-curve.png").write_bytes(b"")
    study = ordered("sizes", 1, ("agrees",))
    caption = {"name": "curve", "title": "Curves (Fig. 1)", "reading": "Drawn of the seeds 0, 1."}
    replace(study, values={**study.values, "figures": [caption]}).save(
        tmp_path / "records" / "sizes"
    )
    page = results_pages([tmp_path / "records"], tmp_path / "figures")["sizes.md"]
    shown = page.index("![Curves (Fig. 1)](../figures/sizes-curve.png)")
    assert shown < page.index("<sub>Curves (Fig. 1). Drawn of the seeds 0, 1.</sub>")


def judged(source, verdict, contrast, half, p_value, **more):
    """A claim as a record holds it."""
    return {
        "source": source,
        "text": f"claim of {source}",
        "verdict": verdict,
        "table": "t",
        "contrast": contrast,
        "low": contrast - half,
        "high": contrast + half,
        "margin": 0.0,
        "detectable": 1.4 * half,
        "p_value": p_value,
        "paper": None,
        "why": "",
        "one_run": False,
        "unit": "points",
        "digits": 1,
        "reading": "Measured.",
        **more,
    }


CLAIMS = [
    judged("A Table 1", "agrees", 5.0, 1.0, 1e-6, paper=3.0),
    judged("A Table 2", "disagrees", -2.0, 1.9, 0.045),
    judged("A Table 3", "not testable here", 0.5, 2.0, 0.6, paper=0.2),
    judged("B Fig. 1", "undecided", 0.5, 2.0, 0.6),
]


def test_a_claim_has_its_interval_detectable_effect_and_the_papers_in_the_table():
    study = made_study("x", ())
    values = {**study.values, "claims": CLAIMS}
    page = section(replace(study, values=values))
    assert "| **agrees** | +5.0 [+4.0, +6.0] points | 1.4 | +3.0 |" in page
    assert "| **not testable here** | +0.5 [−1.5, +2.5] points | 2.8 | +0.2 |" in page
    assert "1 of 4 claims agrees, 1 disagrees, 1 is undecided and 1 is not testable here." in page
    assert "1 of 2 decided claims remains significant: 1 agrees." in page


def test_the_overview_counts_each_paper_alone_and_after_the_correction(tmp_path):
    study = ordered("x", 0, ())
    replace(study, values={**study.values, "claims": CLAIMS}).save(tmp_path / "x")
    page = results_pages([tmp_path], tmp_path)["index.md"]
    assert "| A | 3 | 1 (1) | 1 (0) | 0 | 1 |" in page
    assert "| B | 1 | 0 (0) | 0 (0) | 1 | 0 |" in page


def test_park_and_kims_paper_is_called_by_its_authors(tmp_path):
    study = ordered("x", 0, ())
    claims = [{**claim, "source": "ViT Fig. 6"} for claim in CLAIMS]
    values = {**study.values, "claims": claims, "covers": ["ViT Fig. 6"]}
    replace(study, values=values).save(tmp_path / "x")
    pages = results_pages([tmp_path], tmp_path)
    for page in pages.values():
        assert "Park & Kim Fig. 6" in page
        assert "ViT Fig. 6" not in page
    assert "| Park & Kim | 4 |" in pages["index.md"]


def chosen(monkeypatch):
    """A study of four claims, all but the third of which the findings show."""
    shown = [claim["text"] for place, claim in enumerate(CLAIMS) if place != 2]
    words = {text: f"words {place}" for place, text in enumerate(shown)}
    lines = [("x", text, said) for text, said in words.items()]
    monkeypatch.setattr(findings, "LEADS", {"Which?": lines})
    monkeypatch.setattr(findings, "INSIDE", {"Here": ("x", "five images", words)})
    return Record(kind="study", values={"study": "x", "claims": CLAIMS, "seeds": [0, 1, 2]})


def test_the_table_of_findings_has_what_a_claims_record_has(monkeypatch):
    study = chosen(monkeypatch)
    assert findings.inside_table([study]).splitlines()[2:] == [
        "| Here: five images, 3 seeds | words 0 | agrees | +5.0 [+4.0, +6.0] points |",
        "|  | words 1 | (disagrees) | −2.0 [−3.9, −0.1] points |",
        "|  | words 2 | undecided | +0.5 [−1.5, +2.5] points |",
    ]


def test_a_sentence_of_the_readme_takes_its_numbers_from_the_record(monkeypatch):
    study = chosen(monkeypatch)
    claims = [("x", "claim of A Table 1", "agrees"), ("x", "claim of B Fig. 1", "undecided")]
    monkeypatch.setattr(findings, "FINDINGS", {"It helps by {} points.": claims})
    assert findings.findings_in_words([study]) == "- It helps by 5 points."


@pytest.mark.parametrize("verdict", ["disagrees", "undecided"])
def test_a_sentence_of_the_readme_needs_the_verdict_that_it_states(monkeypatch, verdict):
    study = chosen(monkeypatch)
    claims = [("x", "claim of A Table 1", verdict)]
    monkeypatch.setattr(findings, "FINDINGS", {"It hurts by {} points.": claims})
    with pytest.raises(ValueError, match="no longer"):
        findings.findings_in_words([study])


def test_a_sentence_of_the_readme_needs_a_verdict_that_stays_after_the_correction(monkeypatch):
    study = chosen(monkeypatch)
    claims = [("x", "claim of A Table 2", "disagrees")]
    monkeypatch.setattr(findings, "FINDINGS", {"It hurts.": claims})
    with pytest.raises(ValueError, match="no longer"):
        findings.findings_in_words([study])


def test_a_lead_is_drawn_as_its_record_has_it(monkeypatch, tmp_path):
    study, drawn = chosen(monkeypatch), []
    monkeypatch.setattr(findings.Axes, "plot", lambda *args, **how: drawn.append((args[1:], how)))
    findings.draw_leads([study], tmp_path / "leads.png")
    marks = [(args[:2], how["markerfacecolor"]) for args, how in drawn if "markerfacecolor" in how]
    assert marks == [((5.0, 1), findings._INK), ((-2.0, 2), "white"), ((0.5, 3), "white")]
    colours = [how["color"] for args, how in drawn if "markerfacecolor" not in how]
    assert colours == [findings._INK, findings._INK, findings._FAINT]
    assert drawn[0][0] == ((4.0, 6.0), (1, 1))
    assert (tmp_path / "leads.png").exists()


def test_the_readme_says_what_the_records_say():
    records = README.parent / "docs/records"
    paths = [
        path for name in ("desk", "studies") for path in sorted((records / name).glob("*.json"))
    ]
    studies = [load(path) for path in paths]
    text = README.read_text()
    assert readme_with_findings(text, studies) == text, "make results writes it anew"


def test_a_record_with_our_units_alone_says_so_and_one_with_the_papers_does_not():
    ours = made_study("frequencies", ("agrees",))
    tables = [{**ours.values["tables"][0], "name": "high"}]
    old = replace(ours, values={**ours.values, "tables": tables})
    both = [*tables, {**tables[0], "name": "high-units"}]
    new = replace(ours, values={**ours.values, "tables": both})
    assert findings.note_on_units(old) in section(old)
    assert findings.note_on_units(old)
    assert findings.note_on_units(new) == findings.note_on_units(ours) == ""
