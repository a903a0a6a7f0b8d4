"""The explorer's part of a page, without a browser."""

import base64
import hashlib
import json
import re
import subprocess
import sys

import numpy as np
import pytest

from explorer_making import CAIT, EVIL, explorer_record, with_evil_names
from vitascope.report.explorer import attention_maps as stored_maps
from vitascope.report.explorer.data import as_json, data_of
from vitascope.report.explorer.page import EXPLORER_SCRIPT, page, section, within


@pytest.fixture(scope="module")
def records():
    return [explorer_record("vit_micro"), explorer_record("convit_micro")]


def data_in(html):
    return json.loads(re.search(r'id="ex-data">(.*?)</script>', html, re.DOTALL).group(1))


def test_the_data_in_the_page_are_the_records_maps(records):
    data = data_in(section(records).html)
    for record, model in zip(records, data["models"], strict=True):
        for layer, stored in zip(record.values["layers"], model["layers"], strict=True):
            for part, text in stored["packed"].items():
                array = record.arrays[f"{part}/{layer['name']}"]
                read = np.frombuffer(base64.b64decode(text), array.dtype.newbyteorder("<"))
                np.testing.assert_array_equal(read.reshape(array.shape), array)
        assert len(model["images"]) == len(record.values["images"])
        assert set(model["images"]) <= set(data["images"])


def test_two_models_on_the_same_images_share_their_pictures(records):
    data = data_of(records)
    assert len(data["images"]) == 3
    assert all(
        image["src"].startswith("data:image/png;base64,") for image in data["images"].values()
    )


def test_a_plain_and_a_gated_model_are_shown_side_by_side_first(records):
    plain, gated = records
    for some, shown in (([gated, plain], [1, 0]), ([plain, plain, gated], [0, 2]), ([plain], [0])):
        assert data_of(some)["shown"] == shown


def test_models_of_one_name_are_told_apart(records):
    labels = [model["label"] for model in data_of([records[0], records[0]])["models"]]
    assert labels == ["vit_micro (1)", "vit_micro (2)"]


def test_names_from_outside_cannot_become_markup(records):
    html = str(section([with_evil_names(record) for record in records]).html)
    assert "<img" not in html.replace(html[html.index('id="ex-data">') :], "")
    assert html.count("</script>") == 1
    assert data_in(html)["models"][0]["label"].startswith(EVIL)
    assert json.loads(as_json({"a": "<!--&\u2028"})) == {"a": "<!--&\u2028"}


def test_records_that_do_not_fit_are_left_out_by_name(records):
    kept, left_out = within(records, most=1)
    assert kept == records[:1]  # one is always shown
    assert left_out == ["convit_micro"]
    html = str(section(records, most=1).html)
    assert "Left out, to keep the page small: convit_micro." in html
    assert [model["label"] for model in data_in(html)["models"]] == ["vit_micro"]


def test_the_page_allows_its_own_script_alone_and_asks_for_nothing(records):
    html = page(records)
    script = re.search(r"<script>(.*?)</script>", html, re.DOTALL).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html
    assert EXPLORER_SCRIPT in script
    assert not re.search(r"(src|href|url)\s*[=(]\s*[\"']?(https?:)?//", html)


def test_without_a_script_the_middle_patch_is_drawn_and_boxed(records):
    html = str(section(records).html)
    still = html[html.index('id="ex-static"') : html.index('id="ex-live"')]
    assert still.count("<svg") == 2 * (2 + 3)  # two models: two layers, three maps of relevance
    cells = sum(path.count("M") for path in re.findall(r' d="([^"]*)"', still))
    assert cells == 10 * 16
    assert still.count("<rect") == 4


def test_in_class_attention_the_class_tokens_row_is_stored_and_drawn(records):
    record = explorer_record(CAIT)
    layers = record.values["layers"]
    assert [layer["name"].split(".")[0] for layer in layers] == [
        "blocks",
        *2 * ["blocks_token_only"],
    ]
    assert record.values["left_out"] == {}
    for layer in layers[1:]:
        assert (layer["grid"], layer["keys"]) == ((0, 0), (4, 4))
        assert layer["query_tokens"] == layer["key_tokens"] == ("class token",)
        rows = stored_maps.with_tokens(record, layer["name"], image=1)
        assert rows.shape == (3, 1, 16)
        np.testing.assert_allclose(rows.sum(-1), 1)
        assert rows.std() > 1e-3
    still = str(section([record]).html).partition('id="ex-live"')[0]
    assert "layer 3, head 1, the class token" in still
    assert still.count("<rect") == 1  # the middle patch of the first layer


def test_the_section_needs_no_torch():
    code = "import sys, vitascope.report.explorer; assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
