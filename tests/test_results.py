"""The results page is made from records alone."""

from dataclasses import replace

from make_results import results_page, section

from report_making import made_up
from report_records import made_study
from vitascope.record import Record


def test_a_comparison_shows_its_table_verdicts_and_command(tmp_path):
    record = made_up()
    text = section(record)
    advice = record.values["recommendation"]
    assert advice["headline"] in text
    assert record.values["command"] in text
    assert all(f" {model['label']} |" in text for model in record.values["models"])


def test_every_record_of_the_folder_is_a_section_with_its_figures(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "b-gates-over-time.png").write_bytes(b"")
    Record(kind="bench-gpsa", values={"speed": [["x / y", 1.0, 2.0, 3.0]], "memory": []}).save(
        tmp_path / "records" / "a"
    )
    Record(kind="odd", values={"depth": 3, "layers": ["p|q"]}).save(tmp_path / "records" / "b")
    page = results_page([tmp_path / "records"], tmp_path / "figures")
    assert (
        page.index("## Benchmark: a")
        < page.index("| x / y | 2.00 | 1.00 to 3.00 |")
        < page.index("## b")
    )
    assert "![gates over time](figures/b-gates-over-time.png)" in page
    assert "p\\|q" in page


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
    ordered("late", 7, ("agrees", "within noise")).save(tmp_path / "records" / "late")
    ordered("zeroth", 0, ("disagrees", "agrees", "agrees")).save(tmp_path / "records" / "zeroth")
    Record(kind="odd", values={"depth": 3}).save(tmp_path / "records" / "a")
    page = results_page([tmp_path / "records"], tmp_path)
    assert "3 of 5 claims agree, 1 disagrees and 1 is within noise" in page
    assert "1.0 hours of one core" in page
    table = [line for line in page.splitlines() if line.startswith("| [")]
    assert [line.split("|")[4:7] for line in table] == [[" 2 ", "  ", " 1 "], [" 1 ", " 1 ", "  "]]
    assert {line.split("|")[3] for line in table} == {" digits "}
    assert page.index("## zeroth") < page.index("## late") < page.index("## a\n")


def test_one_study_on_two_sets_of_images_is_told_apart_by_its_file(tmp_path):
    ordered("sizes", 1, ("agrees",)).save(tmp_path / "records" / "sizes")
    other = ordered("sizes", 1, ("disagrees",))
    values = {**other.values, "data": "some/where/photos"}
    replace(other, values=values).save(tmp_path / "records" / "sizes-photos")
    page = results_page([tmp_path / "records"], tmp_path)
    assert "1 studies, 1 of them on other images too, at the laptop scale: 1 of 2 claims" in page
    table = [line.split("|")[1:4:2] for line in page.splitlines() if line.startswith("| [")]
    assert table == [
        [" [sizes](#sizes) ", " digits "],
        [" [sizes-photos](#sizes-photos) ", " photos "],
    ]


def test_a_figure_belongs_to_the_longest_name_that_it_begins_with(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "a-b-curve.png").write_bytes(b"")
    for name in ("a", "a-b"):
        Record(kind="odd", values={"depth": 3}).save(tmp_path / "records" / name)
    page = results_page([tmp_path / "records"], tmp_path / "figures")
    assert page.count("figures/a-b-curve.png") == 1
    assert page.index("## a-b") < page.index("![curve](figures/a-b-curve.png)")
