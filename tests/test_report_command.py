"""``vitascope report``: what it finds, what it refuses, what it writes."""

import json

import pytest

from report_making import made_up
from report_records import made_study, write_inspection, write_run
from vitascope.commands import main
from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.report.page import KINDS
from vitascope.report.records import find


def kinds_below(*paths) -> list[str]:
    return [source.record.kind for source in find(paths, KINDS).sources]


def test_a_folder_is_searched_below_and_runs_of_a_comparison_are_its_parts(tmp_path):
    made_up().save(tmp_path / "compare")
    write_run(tmp_path / "runs" / "a")
    assert kinds_below(tmp_path) == ["compare"]
    assert kinds_below(tmp_path, tmp_path / "runs") == ["compare", "run"]


def test_an_inspection_inside_a_runs_folder_is_found(tmp_path):
    write_run(tmp_path / "a")
    write_inspection(tmp_path / "a" / "inside", "vit_micro")
    found = kinds_below(tmp_path)
    assert found[0] == "run"
    assert {"nonlocality", "cka"} <= set(found)


def test_a_record_given_twice_is_shown_once(tmp_path):
    made_study().save(tmp_path / "one")
    assert kinds_below(tmp_path, tmp_path / "one.json", tmp_path / "one") == ["study"]


def test_other_json_is_passed_over_damaged_and_other_records_are_named(tmp_path):
    made_study().save(tmp_path / "one")
    (tmp_path / "state.json").write_text('{"step": 3}')
    (tmp_path / "broken.json").write_text('{"kind": ')
    (tmp_path / "cut.json").write_text('{"kind": "study", "values": {}}')
    Record(kind="odd-one").save(tmp_path / "speed")
    found = find([tmp_path], KINDS)
    assert [source.record.kind for source in found.sources] == ["study"]
    named = [reason.partition(":")[0] for reason in found.left_out]
    assert named == [str(tmp_path / name) for name in ("broken.json", "cut.json", "speed.json")]


def test_a_half_written_line_of_metrics_is_passed_over(tmp_path):
    write_run(tmp_path, epochs=3, finished=False)
    with open(tmp_path / "metrics.jsonl", "a") as stream:
        stream.write('{"epoch": 4, "top')
    (source,) = find([tmp_path], KINDS).sources
    assert len(source.metrics) == 3


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing", None, "there is no "),
        ("empty/", None, "no record to report on below"),
        ("notes.txt", "hello", "is not a record; give a run"),
        ("state.json", '{"step": 3}', "is not a record"),
    ],
)
def test_what_is_no_record_is_refused_in_one_line(tmp_path, capsys, name, content, words):
    path = tmp_path / name
    if name.endswith("/"):
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    assert main(["report", str(path)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
    assert not list(tmp_path.rglob("report.html"))


def test_a_record_that_no_page_shows_is_refused(tmp_path):
    Record(kind="odd-one").save(tmp_path / "speed")
    with pytest.raises(UserError, match="record of 'odd-one', which a report cannot show"):
        find([tmp_path / "speed.json"], KINDS)


def test_no_path_at_all_is_refused(capsys):
    assert main(["report"]) == 2
    assert "give a run, an evaluation, an inspection" in capsys.readouterr().err


def test_the_page_of_one_path_lies_in_its_folder(tmp_path, capsys):
    folder = write_run(tmp_path / "a")
    assert main(["report", str(folder)]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0] == "vit_micro reaches 90.0 % top-1 on digits after 5 epochs."
    assert out.splitlines()[-1] == str(folder / "report.html")
    assert (folder / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert [path.name for path in folder.glob(".*")] == []


def test_the_page_of_several_paths_lies_in_a_folder_of_its_own(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        write_run(tmp_path / name, name)
    assert main(["report", "a", "b", "--quiet", "--title", "Two <models>"]) == 0
    html = (tmp_path / "report" / "report.html").read_text(encoding="utf-8")
    assert "<title>Two &lt;models&gt;</title>" in html
    assert capsys.readouterr().out == ""


def test_json_tells_what_was_written_and_answered(tmp_path, capsys):
    made_study().save(tmp_path / "one")
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "o"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["report"] == str(tmp_path / "o" / "report.html")
    assert told["answer"] == "1 of 3 claims agrees, 1 disagrees and 1 is undecided."
    assert [section["kind"] for section in told["sections"]] == ["study"]


def test_what_a_comparison_keeps_beside_a_run_is_not_told_as_left_out(tmp_path):
    write_run(tmp_path / "run")
    Record(kind="looks", values={}).save(tmp_path / "run" / "looks")
    Record(kind="odd", values={}).save(tmp_path / "run" / "odd")
    (told,) = find([tmp_path / "run"], KINDS).left_out
    assert "'odd'" in told


def test_a_file_is_no_folder_for_the_page(tmp_path, capsys):
    made_study().save(tmp_path / "study")
    (tmp_path / "taken").write_text("mine")
    assert main(["report", str(tmp_path / "study.json"), "--out", str(tmp_path / "taken")]) == 2
    assert "is a file; give a folder" in capsys.readouterr().err
    assert (tmp_path / "taken").read_text() == "mine"


def test_a_name_that_ends_in_html_is_the_pages(tmp_path, capsys):
    made_study().save(tmp_path / "study")
    words = ["report", str(tmp_path / "study.json"), "--out", str(tmp_path / "o" / "mine.html")]
    assert main([*words, "--tables", "csv"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == words[-1]
    assert {path.name for path in (tmp_path / "o").iterdir()} == {"mine.html", "tables"}
    (tmp_path / "dir.html").mkdir()
    assert main([*words[:-1], str(tmp_path / "dir.html")]) == 2
    assert "is a folder that is called like a page" in capsys.readouterr().err
