"""A page of any records: the answer first, every figure read, nothing from outside believed."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from report_making import made_up, report_of
from report_records import (
    EVIL,
    Page,
    inspection,
    made_evaluation,
    made_study,
    write_inspection,
    write_run,
)
from vitascope.errors import UserError
from vitascope.record import Record
from vitascope.report import page
from vitascope.report.figures.page_renderer import draw_panel
from vitascope.report.figures.paper_renderer import draw_figure
from vitascope.report.figures.style import Styles
from vitascope.report.page import KINDS, compose, render_page
from vitascope.report.records import find
from vitascope.report.sections.claims import tally


def everything(folder):
    """A folder with a comparison, two studies, two inspections, an evaluation and three runs."""
    made_up().save(folder / "c" / "compare")
    made_study().save(folder / "s" / "one")
    made_study("other", ("agrees",)).save(folder / "s" / "other")
    write_inspection(folder / "i" / "convit", "model_0")
    write_inspection(folder / "i" / "vit", "vit_micro", gated=False, layers=6)
    made_evaluation().save(folder / "e" / "vit")
    for seed in (0, 1):
        write_run(folder / "r" / str(seed), seed=seed)
    write_run(folder / "r" / "open", "convit_micro", finished=False)
    return folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    report = report_of(everything(tmp_path_factory.mktemp("records")))
    html = render_page(report)
    return report, html, Page(html)


def test_one_page_holds_records_of_every_kind_in_a_fixed_order(whole):
    report, _, _ = whole
    kinds = [section.kind for section in report.sections]
    assert kinds == ["compare", "study", "study", "inspection", "evaluation", "run"]
    assert report.left_out == ()


def test_the_headline_is_the_comparisons_recommendation(whole):
    report, html, _ = whole
    assert report.lead.answer.startswith("Use ConViT")
    first = re.search(r"<h1>(.*?)</h1>", html)
    assert first is not None
    assert first.group(1) == report.lead.answer
    assert html.index("<h1>") < html.index("<nav")


def test_every_figure_has_a_drawing_with_words_and_a_caption(whole):
    _, html, page = whole
    figures = re.findall(r"<figure>.*?</figure>", html, re.DOTALL)
    assert len(figures) > 20
    for figure in figures:
        assert re.search(r'<svg[^>]* role="img" aria-label="[^"]{10,}"', figure)
        assert re.search(r'<figcaption><p class="reading">[^<]{5,}</p>', figure)
    assert all(chart["role"] == "img" for chart in page.all("svg"))
    assert not re.search(r"\b(nan|inf|NaN|None|undefined)\b", html.split("</style>")[1])


def test_the_list_of_contents_leads_to_every_section(whole):
    report, _, page = whole
    targets = {attributes.get("id") for _, attributes in page.tags}
    links = [a["href"] for a in page.all("a") if (a["href"] or "").startswith("#")]
    assert {href[1:] for href in links} <= targets
    assert {f"#part-{i + 1}" for i in range(len(report.sections))} <= set(links)


def test_tables_have_headers_with_scope_and_regions_a_keyboard_reaches(whole):
    _, _, page = whole
    assert all(header.get("scope") in ("row", "col") for header in page.all("th"))
    scrolls = [a for tag, a in page.tags if a.get("class") == "scroll"]
    assert scrolls
    assert all(a["tabindex"] == "0" and a["role"] == "region" for a in scrolls)


def test_the_page_is_small_and_asks_nobody_for_anything(whole):
    _, html, page = whole
    assert len(html.encode()) < 1_500_000
    for tag, attributes in page.tags:
        for name in ("src", "href", "data", "action", "srcset"):
            value = attributes.get(name)
            if value is not None and tag != "a":
                assert value.startswith("data:"), (tag, name)
    assert "url(" not in html
    assert "@import" not in html


def test_a_model_keeps_its_colour_through_all_sections(tmp_path):
    write_inspection(tmp_path / "i", "convit_micro")
    write_run(tmp_path / "r1", "vit_micro")
    write_run(tmp_path / "r2", "convit_micro")
    made_study().save(tmp_path / "s" / "one")
    report = report_of(tmp_path)
    seen: dict[str, list[int]] = {"convit_micro": [], "vit_micro": []}
    for section in report.sections:
        panels = [panel for figure in section.figures for panel in figure.panels]
        drawn = [line for panel in panels for line in getattr(panel, "series", ())]
        drawn += [row for table in section.tables for row in table.rows if row.style]
        for one in drawn:
            if one.label in seen:
                seen[one.label].append(one.style.colour)
    assert set(seen["convit_micro"]) == {0}  # the first ConViT of any page is blue
    assert len(set(seen["vit_micro"])) == 1
    assert set(seen["vit_micro"]) != {0}
    assert min(map(len, seen.values())) > 5


def test_what_comes_from_outside_stays_text_in_every_section(tmp_path):
    made_study(words=EVIL, models=(EVIL, "b")).save(tmp_path / "s" / "one")
    write_inspection(tmp_path / "i", EVIL, subject=EVIL)
    made_evaluation(EVIL, data=EVIL).save(tmp_path / "e" / "one")
    write_run(tmp_path / "r", EVIL, data=EVIL)
    page = Page(render_page(report_of(tmp_path)))
    assert page.all("img") == []
    assert len(page.all("script")) == 1
    assert not any(name.startswith("on") for _, a in page.tags for name in a)
    assert page.words.count(EVIL) > 30


def test_instruments_of_several_models_share_one_figure(tmp_path):
    write_inspection(tmp_path / "a", "convit_micro")
    write_inspection(tmp_path / "b", "vit_micro", gated=False)
    (section,) = report_of(tmp_path).sections
    figures = {figure.name: figure for figure in section.figures}
    (panel,) = figures["nonlocality"].panels
    assert [line.label for line in panel.series] == ["convit_micro", "vit_micro"]
    assert panel.x_names == ("1", "2", "3", "4")
    assert len(figures["gates"].panels[0].series) == 1  # a plain ViT has none
    assert "vit_micro" in figures["nonlocality"].reading


def test_models_of_different_depth_are_drawn_over_relative_depth(tmp_path):
    write_inspection(tmp_path / "a", "convit_micro", layers=4)
    write_inspection(tmp_path / "b", "deit_tiny", gated=False, layers=12)
    (section,) = report_of(tmp_path).sections
    (panel,) = next(f for f in section.figures if f.name == "nonlocality").panels
    assert panel.x_names == ()
    assert [line.x[-1] for line in panel.series] == [100.0, 100.0]


def test_every_instrument_has_a_figure_a_reading_and_a_definition(tmp_path):
    write_inspection(tmp_path, "convit_micro")
    (section,) = report_of(tmp_path).sections
    assert {figure.name for figure in section.figures} == set(inspection("convit_micro"))
    assert all(figure.reading.endswith(".") and figure.definition for figure in section.figures)


def test_a_study_shows_ours_with_spread_and_the_papers_number_beside_it(tmp_path):
    made_study().save(tmp_path / "one")
    html = render_page(report_of(tmp_path))
    assert re.search(r"42\.0 ± 1\.4</span><small>paper 47\.8</small>", html)
    for word, sign in (("agrees", "✓"), ("disagrees", "✗"), ("undecided", "?")):
        assert f'<span aria-hidden="true">{sign}</span> {word}</span>' in html
    assert "Laptop scale" in html
    assert "vitascope study sample-efficiency --scale laptop" in Page(html).words


def test_the_headline_of_several_studies_counts_all_verdicts(tmp_path):
    made_study("a").save(tmp_path / "a")
    made_study("b", ("agrees", "agrees")).save(tmp_path / "b")
    lead = report_of(tmp_path).lead
    assert lead.answer == "3 of 5 claims agree, 1 disagrees and 1 is undecided."
    assert "4 of 4 decided claims remain significant" in lead.leads[0]
    assert (
        lead.leads[1]
        == "Does not hold here (ConViT Table 3): Claim 2. Ours is 42.0 against 40.0 (2)."
    )
    assert lead.question == "Which claims hold here? 2 studies"


def test_verdicts_are_counted_in_words(tmp_path):
    counted = {}
    for verdicts in (("agrees",), ("agrees", "agrees"), ("disagrees",), ("undecided",) * 2):
        made_study("x", verdicts).save(tmp_path / "x")
        (section,) = report_of(tmp_path / "x.json").sections
        counted[verdicts] = tally([claim.badge.text for claim in section.claims])
    assert list(counted.values()) == [
        "The one claim agrees",
        "All 2 claims agree",
        "The one claim disagrees",
        "All 2 claims are undecided",
    ]


def test_runs_of_one_model_are_told_apart_by_their_seed(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / str(seed), seed=seed, top1=0.8 + 0.1 * seed)
    (section,) = report_of(tmp_path).sections
    lines = section.figures[0].panels[0].series
    assert [line.label for line in lines] == ["vit_micro, seed 0", "vit_micro, seed 1"]
    assert lines[0].style.colour == lines[1].style.colour
    assert lines[0].style.dash != lines[1].style.dash
    assert section.answer.startswith("vit_micro, seed 1 reaches 90.0 % top-1 on digits")


def test_an_unfinished_run_is_shown_and_said_to_be_unfinished(tmp_path):
    write_run(tmp_path, finished=False)
    (section,) = report_of(tmp_path).sections
    assert section.badge is not None
    assert section.badge.text == "Not finished"
    assert "Not finished" in render_page(report_of(tmp_path))


def test_very_long_lines_are_thinned_and_the_page_says_so(tmp_path):
    made_study(num_points=20_000).save(tmp_path / "one")
    html = render_page(report_of(tmp_path))
    assert len(html.encode()) < 200_000
    assert "200 of 20000 points per line are drawn" in html


@pytest.mark.slow
def test_a_page_that_would_grow_too_large_draws_fewer_points_and_says_so(tmp_path, monkeypatch):
    for place in range(4):
        models = tuple(f"model {i}" for i in range(12))
        made_study(f"s{place}", models=models, num_points=300).save(tmp_path / f"s{place}")
    report = report_of(tmp_path)
    whole = render_page(report)
    assert "200 of 300 points per line are drawn" in whole
    assert len(whole.encode()) < 1_000_000
    monkeypatch.setattr(page, "_PAGE_BYTES", len(whole.encode()) // 2)
    small = render_page(report)
    assert len(small.encode()) < 0.9 * len(whole.encode())
    assert re.search(r"(80|30) of 300 points per line are drawn", small)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"title": None, "figures": [{"panels": [{"kind": "pie"}]}]}, "not of 'pie'"),
        ({"tables": [{"rows": []}]}, "not a whole record of 'study': KeyError"),
    ],
)
def test_a_broken_study_is_refused_in_one_line(tmp_path, change, words):
    record = made_study()
    Record(kind="study", values={**record.values, **change}, arrays=record.arrays).save(
        tmp_path / "one"
    )
    with pytest.raises(UserError, match=words) as caught:
        report_of(tmp_path)
    assert "\n" not in str(caught.value)


def test_an_array_of_the_wrong_shape_is_refused_with_its_name(tmp_path):
    record = made_study()
    Record(kind="study", values=record.values, arrays={"heat": np.ones((3, 3))}).save(
        tmp_path / "one"
    )
    with pytest.raises(UserError, match="no array 'heat' of 2 rows and 3 columns"):
        report_of(tmp_path)


def test_an_instruments_record_without_its_numbers_is_refused(tmp_path):
    Record(kind="nonlocality", values={"layers": ["a"]}).save(tmp_path / "nonlocality")
    with pytest.raises(UserError, match="not a whole record of 'nonlocality'"):
        report_of(tmp_path)


@pytest.mark.parametrize("values", [{}, {"top1": "x"}, {"top1": 1.0, "num_images": 0}])
def test_an_evaluation_without_its_numbers_is_refused(tmp_path, values):
    Record(kind="evaluation", values=values, config={"name": "a"}).save(tmp_path / "e")
    with pytest.raises(UserError, match=r"e\.json: not a whole record of 'evaluation': "):
        report_of(tmp_path)


def test_a_broken_record_among_whole_ones_is_left_out_and_named(tmp_path):
    made_study().save(tmp_path / "one")
    Record(kind="spectra").save(tmp_path / "spectra")
    Record(kind="buildup").save(tmp_path / "buildup")
    report = report_of(tmp_path)
    assert [section.kind for section in report.sections] == ["study"]
    said = " ".join(report.left_out)
    assert "spectra.json: not a whole record of 'spectra'" in said
    assert "tried nothing yet" in said
    assert "spectra.json: not a whole record" in render_page(report)


def test_a_study_that_knows_its_networks_colours_them_as_a_comparison_does(tmp_path):
    plain = made_study(models=("vit_micro", "convit_micro"))
    kinds = {"vit_micro": "vit", "convit_micro": "convit"}
    known = replace(plain, values={**plain.values, "kinds": kinds})
    for name, record in (("plain", plain), ("known", known)):
        record.save(tmp_path / name / "study")
    book = compose(find([tmp_path / "known"], KINDS)).styles
    assert book.of("convit_micro") == Styles([("convit_micro", "convit")]).of("convit_micro")
    assert book.of("vit_micro") == Styles([("vit_micro", "vit")]).of("vit_micro")
    assert compose(find([tmp_path / "plain"], KINDS)).styles.of("vit_micro").colour == 0


def answered(right, images=400):
    """Arrays of an evaluation that is right on the images of these positions."""
    label = np.zeros(images, np.int64)
    predicted = np.ones(images, np.int64)
    predicted[right] = 0
    return {"label": label, "predicted": predicted}


@pytest.mark.parametrize(
    ("second", "words"),
    [
        (range(8, 320), "on 8 images and the second on 0: more than chance"),
        (range(16, 328), "on 16 images and the second on 8: no more than chance"),
    ],
)
def test_evaluations_are_compared_image_by_image(tmp_path, second, words):
    """312 right of 320: beyond chance where they are among the same images, else not."""
    for name, right in (("a", range(320)), ("b", second)):
        made = made_evaluation(name, len(right) / 400)
        replace(made, arrays={**made.arrays, **answered(right)}).save(tmp_path / name)
    (section,) = report_of(tmp_path).sections
    assert section.answer == "a: 80 % correct; b: 78 % correct"
    assert "80.0 % (95 % interval 75.8 to 83.6) of 400 images" in section.leads[0]
    assert words in section.leads[1]
    assert [bar.label for bar in section.bars] == ["a", "b"]
    assert [row.cells[0].bold for row in section.tables[0].rows] == [True, False]
    (line, _, _) = section.figures[0].panels[0].series
    assert (line.x, line.y) == ([50.0, 90.0], [60.0, 80.0])  # the empty bin is no point
    words = f"--data digits --split test --threads {torch.get_num_threads()} --out {tmp_path}/a"
    assert section.agains[0].command == f"vitascope evaluate a {words}"


def test_evaluations_on_other_images_are_not_judged(tmp_path):
    made_evaluation("a", 0.8).save(tmp_path / "a")
    made_evaluation("b", 0.5).save(tmp_path / "b")
    (section,) = report_of(tmp_path).sections
    assert "not measured on the same images" in section.leads[1]


def test_the_line_that_was_typed_is_how_to_get_it_again(tmp_path):
    typed = "vitascope evaluate runs/a --images 100 --out e"
    made = {**made_evaluation().made, "command": typed}
    replace(made_evaluation(), made=made).save(tmp_path / "a")
    (section,) = report_of(tmp_path).sections
    assert section.agains[0].command == typed
    made["command"] = "vitascope compare --data digits"  # made something larger
    replace(made_evaluation(), made=made).save(tmp_path / "a")
    (section,) = report_of(tmp_path).sections
    assert section.agains[0].command.startswith("vitascope evaluate vit_micro ")


def test_units_are_marked_and_counted_by_their_kind(tmp_path):
    values = {
        "units": ["stem", "a.attn", "a.mlp", "b.attn", "b.conv"],
        "kind": ["stem", "attention", "mlp", "attention", "convolution"],
        "stage": [0] * 5,
        "variance": [1.0, 0.5, 2.0, 2.5, 3.0],
    }
    Record(kind="variance", values=values, config={"name": "mine"}).save(tmp_path / "v")
    (section,) = report_of(tmp_path).sections
    assert section.answer == (
        "mine's variance goes from 1 to 3, falling after 1 of 2 attention units, 0 of 1 MLP and "
        "0 of 1 convolution."
    )
    (figure,) = section.figures
    assert figure.how == "Marks: ● attention, ■ MLP, ▲ convolution, ◆ other units."
    (line,) = figure.panels[0].series
    assert line.marks == ["diamond", "circle", "square", "circle", "triangle"]
    drawn = str(draw_panel(figure.panels[0]))
    titled = re.findall(r"<circle[^>]*></circle><title>mine at ([^:]*):", drawn)
    assert titled == ["a.attn", "b.attn"]
    legend = draw_figure(figure).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        "attention",
        "MLP",
        "convolution",
        "other units",
    ]


def test_a_long_answer_is_set_smaller(tmp_path):
    made_evaluation().save(tmp_path / "a")
    short = report_of(tmp_path)
    long = replace(short, sections=(replace(short.sections[0], answer="word " * 40),))
    assert '<h1 class="long">' in render_page(long)
    assert "<h1>" in render_page(short)


def test_noise_of_low_and_high_frequencies_is_told_apart_for_each_model(tmp_path):
    for name, found in (("a", [0.5, 0.8]), ("b", [0.7, 0.6])):
        record = inspection(name)["frequency"]
        replace(record, values={**record.values, "accuracy": found}).save(tmp_path / name / "f")
    (section,) = report_of(tmp_path).sections
    assert section.answer.startswith(
        "Top-1 with noise up to 0.5 π and above: a 50.0 % and 80.0 %, b 70.0 % and 60.0 % ("
    )
    one_sided = {**record.values, "frequencies": [0.6, 0.9]}
    replace(record, values=one_sided).save(tmp_path / "b" / "f")
    (section,) = report_of(tmp_path).sections
    assert section.answer.startswith("Top-1 falls at worst: a from 90.0 % to 50.0 %, b from")


def test_folders_of_one_run_are_one_model_and_keep_their_commands(tmp_path):
    found = inspection("convit_micro", subject="runs/a")
    for place, kinds in (("inside", ("gates", "lesion")), ("stands", ("fgsm",))):
        for kind in kinds:
            record = found[kind]
            made = {**record.made, "command": f"vitascope inspect runs/a --out {place}"}
            config = {**record.config, "run": "runs/a"}
            replace(record, config=config, made=made).save(tmp_path / place / kind)
    (section,) = report_of(tmp_path).sections
    assert section.title == "Inside convit_micro"
    assert {figure.name for figure in section.figures} == {"gates", "lesion", "fgsm"}
    assert [again.command for again in section.agains] == [
        "vitascope inspect runs/a --out inside",
        "vitascope inspect runs/a --out stands",
    ]
    other = {**found["fgsm"].config, "run": "runs/b"}
    replace(found["fgsm"], config=other).save(tmp_path / "stands" / "fgsm")
    assert report_of(tmp_path).sections[0].title == "Inside 2 models"


def test_the_speed_of_models_has_its_table_and_command(tmp_path):
    rows = [["deit_tiny", 5.7, 50.0, 20.0, 1442], ["resnet50", 25.6, 30.0, 12.5, None]]
    values = {"throughput": rows, "speed": []}
    config = {"batch_size": 8, "device": "cpu"}
    Record(kind="bench-throughput", values=values, config=config).save(tmp_path / "speed")
    (section,) = report_of(tmp_path).sections
    assert section.answer == "Images a second: deit_tiny 50, resnet50 30."
    (table,) = section.tables
    assert [cell.text for cell in table.rows[0].cells] == ["5.7", "50", "20", "1,442"]
    assert section.agains[0].command == "vitascope models --speed deit_tiny resnet50"
