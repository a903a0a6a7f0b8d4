"""The guides: a page for each instrument, whose commands, calls, links and figures are there."""

import json
import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

import make_api
import pytest
import torch
from make_figures import run_of
from PIL import Image
from timm.models.pit import PoolingVisionTransformer
from timm.models.swin_transformer import SwinTransformer
from timm.models.vision_transformer import VisionTransformer
from timm.utils import AttentionExtract

import vitascope
import vitascope.capture
from model_making import of_hub, small_convit, small_vit
from page_reading import blocks, understand
from slow_marks import slow_if
from vitascope import measure
from vitascope.figure import Style
from vitascope.loading.opening import open_model
from vitascope.measure.instrument import ModelRecord
from vitascope.measure.registry import INSTRUMENTS as SHOWN
from vitascope.record import load
from vitascope.stats.differences import difference

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
INSTRUMENTS = sorted(set(measure.__all__) - {"together"})  # that one runs the others
PAGES = {page.stem: page for page in sorted((DOCS / "instruments").glob("*.md"))}
EVERY = [
    ROOT / "README.md",
    *sorted(p for p in DOCS.rglob("*.md") if DOCS / "api" not in p.parents),
]
MADE = {f"{name}.md" for name in make_api.PAGES} | {"README.md", "commands.md", "recipes.md"}
RECORDS = [*sorted(DOCS.rglob("*.json")), *sorted((ROOT / "benchmarks").rglob("*.json"))]
HEADINGS = ("Definition", "Example", "How to read it", "Traps", "Run it", "What was checked")
SEEDS = "Over several seeds"  # a heading of the pages whose subject a study asks about
MACHINE_PATH = re.compile(r"(?<![\w./-])(/tmp|/work|/root|/home|/Users|[A-Z]:\\\\)\b")


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


def text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def unwrapped(page: Path) -> str:
    """The text of a page without its line breaks."""
    return " ".join(text(page).split())


def links(page: Path) -> list[str]:
    """Targets outside of code."""
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", text(page), flags=re.DOTALL)
    return re.findall(r"!?\[[^\]]*\]\(([^)\s]+)\)", prose)


def anchors(page: Path) -> set[str]:
    """The headings as GitHub links to them."""
    titles = re.findall(r"^#+ (.+)$", text(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def commands() -> list[str]:
    lines = [
        line for page in PAGES.values() for b in blocks(page, "bash") for line in b.split("\n")
    ]
    return sorted({line for line in lines if line})


def test_every_instrument_has_a_page_and_every_page_an_instrument():
    assert sorted(PAGES) == INSTRUMENTS


def test_the_index_leads_to_every_page():
    linked = set(links(DOCS / "instruments.md"))
    assert {f"instruments/{name}.md" for name in INSTRUMENTS} <= linked


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_page_asks_a_question_and_has_all_its_parts_on_few_lines(name):
    title, question, *_ = [line for line in text(PAGES[name]).splitlines() if line]
    assert title.startswith("# ")
    assert question.endswith("?")
    headings = re.findall(r"^## (.+)$", text(PAGES[name]), re.MULTILINE)
    assert tuple(heading for heading in headings if heading != SEEDS) == HEADINGS
    assert len(text(PAGES[name]).splitlines()) <= 100
    assert "../deviations.md#" in text(PAGES[name])
    assert f"measure.{name}(" in "".join(blocks(PAGES[name], "python"))


def test_no_axis_label_of_an_example_figure_is_cut_off():
    """In a paper's figure labels have room for 36 letters."""
    for path in sorted((DOCS / "figures" / "instruments" / "records").glob("*.json")):
        record = load(path)
        if record.kind not in SHOWN:
            continue
        figure = SHOWN[record.kind].figure(
            [ModelRecord(label="model", style=Style(), record=record)]
        )
        labels = {
            getattr(panel, name, "") for panel in figure.panels for name in ("x_label", "y_label")
        }
        assert max(map(len, labels)) <= 36, path.stem


@pytest.mark.parametrize("name", INSTRUMENTS)
def test_a_page_shows_a_small_figure_with_the_record_of_its_numbers(name):
    figures = re.findall(r"!\[[^\]]+\]\(([^)]+)\)", text(PAGES[name]))
    assert figures
    for target in figures:
        figure = PAGES[name].parent / target
        assert figure.stat().st_size < 60_000
        with Image.open(figure) as image:
            assert image.width <= 900
        record = figure.parent / "records" / f"{figure.stem}.json"
        assert json.loads(text(record))["kind"] == name


def test_the_example_figures_are_of_a_comparisons_run_on_most_images(tmp_path):
    for name, share in (("vit_micro-aa", 0.1), ("vit_micro-bb", 1.0), ("vit_micro-cc", 0.5)):
        folder = tmp_path / "runs" / name / "seed-0"
        folder.mkdir(parents=True)
        config = f"{{recipe: {{subset: {{fraction: {share}}}}}, model: {{}}, data: {{}}}}"
        (folder / "config.yaml").write_text(config, encoding="utf-8")
    assert run_of(tmp_path, "vit_micro") == tmp_path / "runs" / "vit_micro-bb" / "seed-0"


@pytest.mark.parametrize("page", EVERY, ids=named)
def test_links_and_images_lead_somewhere(page):
    for target in links(page):
        if target.startswith(("http:", "https:")):
            continue
        path, _, anchor = target.partition("#")
        found = (page.parent / path if path else page).resolve()
        if found.parent == DOCS / "api":  # made by the build of the site, which checks anchors
            assert found.name in MADE
            continue
        assert found.exists(), target
        assert not anchor or anchor in anchors(found), target


def study(name: str) -> Mapping[str, Any]:
    """The values of a study's record."""
    (path,) = [p for p in RECORDS if p.stem == name and p.parent.name in ("desk", "studies")]
    return json.loads(text(path))["values"]


def test_instrument_pages_give_the_verdicts_of_the_records():
    line = re.compile(
        r'^- "(.+)": \*\*(.+)\*\* \(\[(.+)\]\(.*\): (.+), (\d+) seeds\)$', re.MULTILINE
    )
    told = [(name, *found) for name, page in PAGES.items() for found in line.findall(text(page))]
    assert len({name for name, *_ in told}) >= 12
    for name, claim, verdict, record, images, seeds in told:
        values = study(record)
        (kept,) = [each for each in values["claims"] if each["text"] == claim]
        assert kept["verdict"] == verdict, f"{name}: {claim}"
        assert len(values["seeds"]) == int(seeds)
        assert (values["data"] == "digits") == (images == "digits")


def test_a_page_on_a_single_run_links_to_its_verdicts():
    for name, page in PAGES.items():
        parts = re.split(r"^## (.+)$", text(page), flags=re.MULTILINE)
        if SEEDS in parts:
            assert "one run" in parts[parts.index(SEEDS) + 1], name
        assert "Here too" not in text(page)


def test_the_page_on_frequency_noise_has_the_numbers_of_its_records():
    for model in ("vit", "resnet"):
        values = load(DOCS / "records" / f"frequency-{model}-cifar10").values
        lost = {
            where: fmean(
                100 * (values["clean"] - top1)
                for f, top1 in zip(values["frequencies"], values["accuracy"], strict=True)
                if inside(f)
            )
            for where, inside in (("low", lambda f: f <= 0.3), ("high", lambda f: f >= 0.7))
        }
        for number in lost.values():
            assert f" {number:.1f}" in unwrapped(PAGES["frequency"])


def test_the_pages_on_units_count_those_of_their_records():
    for model in ("vit", "convit"):
        values = load(DOCS / "records" / f"inside-{model}-cifar10-variance").values
        steps = zip(values["kind"][1:], values["variance"], values["variance"][1:], strict=False)
        lower = [after < before for kind, before, after in steps if kind == "attention"]
        count, page = f"{sum(lower)} of {len(lower)}", unwrapped(PAGES["variance"])
        assert re.search(rf"{count} (attention units )?of `{model}_micro`", page)


@pytest.mark.parametrize("page", EVERY, ids=named)
def test_no_two_sections_of_a_page_have_one_title(page):
    prose = re.sub(r"```.*?```", "", text(page), flags=re.DOTALL)
    titles = re.findall(r"^## (.+)$", prose, re.MULTILINE)
    assert len(titles) == len(set(titles))


def test_pretrained_results_do_not_recommend_what_their_test_images_contradict():
    for section in text(DOCS / "pretrained-results.md").split("\n## "):
        assert not (", though the " in section and "Take " in section)


@pytest.mark.parametrize("page", [*EVERY, *RECORDS], ids=named)
def test_nothing_names_a_path_of_the_machine_it_was_made_on(page):
    assert MACHINE_PATH.search(text(page)) is None


def test_the_first_page_says_what_every_extra_is_for():
    project = tomllib.loads(text(ROOT / "pyproject.toml"))["project"]
    told = re.findall(r"^\| `(\w+)` \|", text(DOCS / "index.md"), re.MULTILINE)
    assert {*told, "docs", "dev", "test"} == set(project["optional-dependencies"])


@pytest.mark.parametrize("line", commands())
def test_every_command_of_a_page_is_understood(line):
    understand(line)


@cache
def shown() -> dict[str, object]:
    """What the pages take as given: a model, images in its statistics, scenes, and some weights."""
    torch.manual_seed(0)
    mean, std = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
    model = small_convit(depth=2, num_gpsa_blocks=1)
    pixels = torch.rand(2, 6, 3, 16, 16)
    batches = [((p - 0.5) / 0.25, torch.tensor([0, 1, 2, 0, 1, 2])) for p in pixels]
    scenes = [(torch.randn(2, 3, 32, 32), torch.randint(3, (2, 32, 32)))]
    start, middle, end = ({"w": torch.tensor(w)} for w in ([1.0, 0.0], [0.5, 0.2], [0.0, 0.0]))
    return {
        "model": model,
        "batches": batches,
        "mean": mean,
        "std": std,
        "scenes": scenes,
        "images": batches[0][0],
        "start": start,
        "middle": middle,
        "end": end,
    }


def assert_values(printed: str) -> None:
    """Numbers were printed, and no function or object that somebody forgot to call or to read."""
    assert re.search(r"\d", printed), printed
    assert re.search(r"<[^>]*(method|function|object|property)\b|\bat 0x", printed) is None, printed
    assert re.search(r"\bnan\b", printed) is None, printed


@pytest.mark.parametrize("name", slow_if(INSTRUMENTS, {"blocks"}))
def test_the_python_of_a_page_runs_and_gives_a_record(name, capsys):
    (code,) = blocks(PAGES[name], "python")
    names = dict(shown())
    exec(compile(code, PAGES[name].name, "exec"), names)  # the page's own words
    assert names["result"].to_record().kind == name
    assert_values(capsys.readouterr().out)


def test_the_python_of_the_index_runs(capsys):
    first, second = blocks(DOCS / "instruments.md", "python")
    exec(compile(first, "instruments.md", "exec"), {})
    assert capsys.readouterr().out.startswith("[")
    deep = vitascope.create_model("vit_micro", num_classes=3, img_size=16)
    exec(compile(second, "instruments.md", "exec"), {**shown(), "model": deep})


def test_the_guide_gives_the_one_command_and_the_numbers_of_the_records():
    guide = unwrapped(DOCS / "which-model.md")
    assert "vitascope compare --data photos/" in blocks(DOCS / "which-model.md", "bash")[0]
    few, many = load(DOCS / "records" / "digits").values["table"]
    names = ("ViT", "ConViT", "ResNet")
    first = [f"{n} {e['mean']:.1f}" for n, e in zip(names, few["entries"], strict=True)]
    a, b, c = (f"{entry['mean']:.1f}" for entry in many["entries"])
    assert f"with {few['num_images']} images {', '.join(first)} %" in guide
    assert f"with {many['num_images']:,} {a}, {b} and {c} %" in guide


def test_the_guide_has_the_numbers_of_the_studies_on_real_images():
    guide, desk = unwrapped(DOCS / "which-model.md"), DOCS / "records" / "desk"
    claims = {claim["text"]: claim for claim in load(desk / "locality-dial").values["claims"]}
    table = claims["+sincos is ahead of a plain ViT on 2 % of the images"]
    weights = claims["+mimetic is ahead of +sincos, its table alone, on 2 % of the images"]
    told = [f"{weights[name]:.1f}" for name in ("contrast", "low", "high")]
    assert f"by {table['contrast']:.1f} percentage points" in guide
    assert "{} [{}, {}]".format(*told) in guide
    right = load(desk / "pooling-cifar10").arrays
    runs = {name.split("/")[1].rsplit("-", 1)[0]: found for name, found in right.items()}
    resnet, vit = runs["resnet_micro"], runs["vit_micro"]
    lead = difference(resnet, vit)
    assert f"by {lead.value:.1f} [{lead.low:.1f}, {lead.high:.1f}] on 5,000" in guide
    assert f"({100 * resnet.mean():.1f} and {100 * vit.mean():.1f} %" in guide


def test_the_page_on_attention_maps_has_the_costs_of_the_record():
    page, record = (
        unwrapped(DOCS / "tutorials" / "attention-of-any-model.md"),
        ROOT / "benchmarks" / "records" / "capture.json",
    )
    values = json.loads(text(record))["values"]
    rows = {  # where a library has no such way the cell is empty
        "`capture.attention`": ("timm: capture.attention", "Hugging Face: capture.attention"),
        "forward hooks, fused attention switched off": ("timm: forward hooks, not fused", ""),
        "timm's `AttentionExtract`, fused attention switched off": (
            "timm: AttentionExtract, not fused",
            "",
        ),
        '`output_attentions=True`, `attn_implementation="eager"`': (
            "",
            "Hugging Face: output_attentions, eager",
        ),
    }
    cost = {way: f"{median:.2f}" for way, _, median, _ in values["cost"]}
    for words, ways in rows.items():
        line = " | ".join(["", words, *(cost.pop(way, "") for way in ways), ""])
        assert " ".join(line.split()) in " ".join(page.split())
    assert cost == {}
    speed = {what: median for what, _, median, _ in values["speed"]}
    eager = "Hugging Face: capture.attention / output_attentions, eager"
    assert f"at {speed[eager]:.2f} of its speed" in page
    (_, ours, theirs), (_, number, _) = values["memory"]
    assert f"({ours / 1e6:.1f} and {theirs / 1e6:.1f} MB)" in page
    assert f"in {number / 1e6:.1f} MB" in page


@pytest.mark.parametrize("library", ["timm", "hugging face"])
def test_captured_maps_are_those_of_the_ways_the_page_compares_with(library):
    torch.manual_seed(0)
    images = torch.randn(1, 3, 32, 32)
    if library == "timm":
        model = small_vit(in_chans=3, img_size=32, patch_size=8).eval()
        with vitascope.capture.attention(model) as ours:
            model(images)
        for block in model.blocks:
            block.attn.fused_attn = False
        extract = AttentionExtract(model, names=["blocks.*.attn.softmax"], method="fx")
        theirs = list(extract(images).values())
    else:
        model = of_hub("ViT", attn_implementation="eager")().eval()
        with vitascope.capture.attention(model) as ours:
            theirs = model(images, output_attentions=True).attentions
    assert len(ours) == len(theirs) == 2
    for mine, other in zip(ours.values(), theirs, strict=True):
        torch.testing.assert_close(mine, other.detach(), atol=1e-6, rtol=1e-4)


RELEASED = {  # as in the README of Park and Kim's repository
    "vit_tiny_cifar": (
        VisionTransformer,
        {"embed_dim": 192, "depth": 12, "num_heads": 3, "patch_size": 2, "qkv_bias": False},
        {"qkv_bias": False},
    ),
    "pit_tiny_cifar": (
        PoolingVisionTransformer,
        {"base_dims": [32] * 3, "depth": [2, 6, 4], "heads": [2, 4, 8], "mlp_ratio": 4}
        | {"patch_size": 2, "stride": 1},
        {"stride": 1},
    ),
    "swin_tiny_cifar": (
        SwinTransformer,
        {"embed_dim": 96, "depths": (2, 2, 6, 2), "num_heads": (3, 6, 12, 24)}
        | {"patch_size": 1, "window_size": 4, "qkv_bias": False},
        {"qkv_bias": False},
    ),
}


@pytest.mark.parametrize("name", RELEASED)
def test_park_and_kims_transformers_open_as_the_page_says(name):
    page = {}
    exec(compile(blocks(DOCS / "park-kim-checkpoints.md", "python")[0], "page", "exec"), page)
    make, theirs, ours = RELEASED[name]
    released = make(num_classes=100, img_size=32, **theirs).eval()
    model = page["opened"](name, released.state_dict(), **ours)
    image = torch.randn(1, 3, 32, 32)
    with torch.no_grad():
        torch.testing.assert_close(model(image), released(image))
    assert open_model(model).preprocessing.mean == page["MEAN"]


def test_park_and_kims_resnet_is_renamed_as_the_page_says():
    page = {}
    exec(compile(blocks(DOCS / "park-kim-checkpoints.md", "python")[0], "page", "exec"), page)
    own = vitascope.create_model("resnet_postact_50", stem="cifar", num_classes=100).state_dict()
    released = {}
    for name, value in own.items():
        name = re.sub(r"^stages\.(\d)", lambda stage: f"layer{int(stage[1]) + 1}", name)
        name = name.replace("stem.", "layer0.").replace(".norm", ".bn")
        name = name.replace(".downsample.", ".shortcut.").replace("head.fc.", "classifier.0.dense.")
        released[name] = value
    assert page["renamed"](released).keys() == own.keys()
    page["opened"]("resnet_postact_50", released, stem="cifar")
