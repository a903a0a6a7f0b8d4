"""The papers' own numbers, and the parts that their tables and figures need."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

from data_making import write_folder
from vitascope.errors import UserError
from vitascope.figure import restored, stored
from vitascope.inspection.first_maps import CENTRES, initial_maps
from vitascope.layers import GPSA, PSA, BoxBlur
from vitascope.layers.blur import ReleasedBlur
from vitascope.layers.positions import axis_windows, window_weight
from vitascope.measure.throughput import throughput
from vitascope.models import create_model
from vitascope.papers.catalog import catalog
from vitascope.papers.convit.accuracy import CNNS, TRANSFORMERS, parameters_figure
from vitascope.papers.convit.measurements import head_mean, positional_layers
from vitascope.papers.cost import hours, size_of
from vitascope.papers.plan import CellSpec, Measurement, Results, gain
from vitascope.papers.scale import DESK, LAPTOP, PAPER
from vitascope.papers.vit.tables import published_corruptions
from vitascope.record import Record, load
from vitascope.report.figures.maps import draw_maps
from vitascope.report.figures.paper_renderer import draw_figure
from vitascope.runs.cache import reading_of, recipe_of
from vitascope.runs.executor import Engine, run_all
from vitascope.runs.spec import FINAL, Reading, Training

STUDIES = catalog()


@pytest.mark.parametrize("scale", [LAPTOP, PAPER], ids=lambda scale: scale.name)
@pytest.mark.parametrize("name", STUDIES)
def test_a_claim_holds_in_the_papers_own_numbers(name, scale):
    plan = STUDIES[name].plan(scale)
    for claim in plan.claims:
        contrast = plan.contrast(claim)
        numbers = [contrast.table.filled[cell].paper for cell in contrast.cells]
        if None not in numbers:
            weights = contrast.cells.values()
            effect = sum(weight * n for weight, n in zip(weights, numbers, strict=True))
            assert effect > contrast.margin, (claim.source, claim.text, effect)


def test_the_lead_that_grows_with_the_size_is_that_of_the_plus_models():
    for scale in (LAPTOP, PAPER):
        plan = STUDIES["sizes"].plan(scale)
        (grows,) = (claim for claim in plan.claims if "grows with the size" in claim.text)
        assert {column for _, column in plan.contrast(grows).cells} == {"Ti+", "B+"}


def test_fig_12_right_is_drawn_from_the_runs_on_all_images():
    plan = STUDIES["ablation"].plan(PAPER)
    shares = {training.full_recipe.subset.fraction for training, _ in plan.for_figures}
    assert shares == {1.0}
    assert len(plan.for_figures) == len(plan.tables[0].rows)


def test_frozen_gpsa_is_there_with_both_meanings_of_a_frozen_gate():
    table = STUDIES["ablation"].plan(LAPTOP).tables[0]
    rows = {label: table.row(label)[0] for label in table.rows}
    for label, gate in (("f conv init, GPSA frozen", 0.7311), ("f, gates at 1/2", 0.5)):
        model = create_model(rows[label].training.model, **rows[label].training.model_args)
        layers = [m for m in model.modules() if isinstance(m, GPSA)]
        assert layers
        for layer in layers:
            torch.testing.assert_close(layer.gate, torch.full((9,), gate), atol=1e-4, rtol=0)
            assert not any(p.requires_grad for p in layer.parameters())


def test_psa_of_equation_5_never_learns_content():
    torch.manual_seed(0)
    x = torch.randn(2, 16, 36)
    for std, learns in ((0.0, False), (0.02, True)):
        layer = PSA(36, 9, content_std=std)
        optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            layer(x).square().sum().backward()
            optimizer.step()
        assert bool(layer.qk.weight.grad.any()) is learns
        maps = layer.attention(x)
        alike = torch.allclose(maps.mixed, maps.position.expand_as(maps.mixed), atol=1e-6)
        assert alike is not learns


def test_figure_3_has_its_four_centres_and_two_strengths():
    found = initial_maps()
    assert found.strengths == (0.5, 2.0)
    assert found.maps.shape == (2, 4, 14, 14)
    np.testing.assert_allclose(found.maps.sum((2, 3)), 1.0)
    for soft, sharp, (down, across) in zip(*found.maps, CENTRES, strict=True):
        centre = (int(found.query[0] + down), int(found.query[1] + across))
        assert np.unravel_index(soft.argmax(), soft.shape) == centre
        assert sharp[centre] > 2 * soft[centre]


def test_figure_8_is_the_whole_grid_and_six_epochs():
    plan = STUDIES["locality-strength"].plan(PAPER)
    number, grid = plan.tables
    assert grid.rows == ["0.01", "0.1", "1"]
    assert list(grid.columns) == ["0", "3", "6", "9"]
    trained = {cell.training.key for cell in grid.filled.values()}
    assert len(trained) == 10  # without GPSA layers there is one network, not three
    assert len(number.columns) == 7
    assert number.columns[0] == "7 %"  # epoch 20 of 300


def test_layers_count_as_positional_while_their_gates_are_open_on_average():
    gates = np.array([[[0.7, 0.7], [0.7, 0.7], [0.7, 0.7]], [[0.9, 0.1], [0.3, 0.0], [0.1, 0.0]]])
    record = Record(kind="looks", values={"epochs": [0, 8]}, arrays={"gates": gates})
    assert positional_layers(record) == pytest.approx(2 / 3)
    assert head_mean("gates", layers=slice(0, 1))(record) == pytest.approx(0.5)
    assert head_mean("nonlocality")(record) is None


def test_the_layers_that_stay_positional_are_the_first():
    plan = STUDIES["sizes"].plan(PAPER)
    (table,) = (table for table in plan.tables if table.name == "gates")
    gates = np.array([[[0.7, 0.7]] * 3, [[0.9, 0.5], [0.3, 0.0], [0.1, 0.0]]])
    record = Record(kind="looks", values={"epochs": [0, 8]}, arrays={"gates": gates})
    read = [[cell.measurement.key(record) for cell in table.row(label)] for label in table.rows]
    assert read == [[pytest.approx(0.7)] * 3, [pytest.approx(0.05)] * 3]
    told = [c for c in map(plan.contrast, plan.claims) if c.table.name == "gates"]
    assert [list(contrast.cells.values()) for contrast in told] == [[1, -1]] * 3
    assert all(next(iter(contrast.cells))[0] == table.rows[0] for contrast in told)


def test_throughputs_are_those_of_the_appendices():
    told = {}
    for study in ("landscape", "alternet"):
        (table,) = (t for t in STUDIES[study].plan(PAPER).tables if t.name == "throughput")
        told |= {
            (study, table.paper_rows[row]): round(cell.paper)
            for (row, _), cell in table.filled.items()
        }
    assert told == {
        ("landscape", "ViT-Ti"): 434,
        ("landscape", "ResNet-50"): 320,
        ("landscape", "PiT-Ti"): 364,
        ("landscape", "Swin-Ti"): 469,
        ("alternet", "ResNet-50"): 394,  # AlterNet is 20 % faster
        ("alternet", "AlterNet-50"): 473,
    }


def test_throughput_counts_images_and_leaves_the_model_as_it_was():
    model = create_model("convit_micro", num_classes=10).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    calls = []
    model.register_forward_pre_hook(lambda module, args: calls.append(len(args[0])))
    for mode in ("inference", "training"):
        found = throughput(model, (3, 32, 32), mode=mode, batch_size=2, rounds=2)
        assert len(found.rates) == 2
        assert found.to_record().values["images_per_second"] == found.median > 0
    assert calls == [2] * 6
    assert model.training
    assert all(parameter.grad is None for parameter in model.parameters())
    for name, value in model.state_dict().items():
        torch.testing.assert_close(value, before[name])


def test_throughput_of_a_slower_model_is_lower():
    def sleeping(seconds):
        model = torch.nn.Linear(4, 4)
        model.register_forward_pre_hook(lambda module, args: time.sleep(seconds))
        return throughput(model, (4,), batch_size=10, rounds=3).median

    fast, slow = sleeping(0.0), sleeping(0.3)
    assert slow < 10 / 0.3
    assert fast > slow


def test_a_blur_keeps_constants_and_takes_out_the_highest_frequency():
    blur = BoxBlur(2)
    constant = torch.full((1, 2, 5, 6), 3.0)
    torch.testing.assert_close(blur(constant), constant)
    checkers = torch.tensor([1.0, -1.0]).repeat(4)[None, None, None] * torch.ones(1, 1, 8, 1)
    assert blur(checkers)[..., :-1].abs().max() == 0  # |cos(w / 2)| at w = pi
    for turns in (4, 16, 28):  # waves in 64 points, that is turns / 32 of pi
        wave = torch.cos(torch.arange(65) * 2 * np.pi * turns / 64).expand(1, 1, 4, 65)
        before, after = (torch.fft.rfft(x[0, 0, 0, :64]).abs() for x in (wave, blur(wave)))
        response = (after[turns] / before[turns]).item()
        assert response == pytest.approx(np.cos(np.pi * turns / 64), rel=1e-4)


def test_the_released_blur_bounds_rectifies_and_pads_with_zeros():
    x = torch.tensor([[[[-5.0, 20.0], [1.0, 2.0]]]], dtype=torch.float64)
    bounded = 10 * torch.tanh(x / 10) * (x > 0)
    found = ReleasedBlur(2)(x)
    assert found.shape == (1, 1, 3, 3)
    torch.testing.assert_close(found[0, 0, 1, 1], bounded.mean())
    torch.testing.assert_close(found[0, 0, 0, 2], bounded[0, 0, 0, 1] / 4)
    torch.testing.assert_close(found[0, 0, 2, 1], bounded[0, 0, 1].sum() / 4)


def test_a_blur_may_stand_after_some_stages_only():
    made = create_model("resnet_micro", blur=2, blur_kind="released", blur_stages=(1, 2))
    kinds = [type(stage[-1]) is ReleasedBlur for stage in made.stages]
    assert kinds == [True, True, False]
    assert made(torch.zeros(1, 3, 32, 32)).shape == (1, 1000)
    with pytest.raises(UserError, match="there are stages 1 to 3"):
        create_model("resnet_micro", blur=2, blur_stages=(4,))
    with pytest.raises(UserError, match="'gauss'"):
        create_model("resnet_micro", blur=2, blur_kind="gauss")


def test_a_resnet_with_blur_smooths_the_end_of_every_stage_and_nothing_else():
    torch.manual_seed(0)
    plain = create_model("resnet_micro").eval()
    smooth = create_model("resnet_blur_micro").eval()
    smooth.load_state_dict(plain.state_dict())  # a blur has no weights
    assert [type(stage[-1]) for stage in smooth.stages] == [BoxBlur] * 3
    x = plain.embed(torch.randn(1, 3, 16, 16))
    torch.testing.assert_close(smooth.run_stage(0, x), BoxBlur(2)(plain.run_stage(0, x)))


def test_figure_2_right_stands_over_parameters_beside_the_published_networks():
    plan = STUDIES["sizes"].plan(PAPER)
    records = {}
    for key, (training, readings) in plan.wanted().items():
        parameters = size_of(training)[0]
        values = {"top1": 0.8, "images_per_second": 1.0, "parameters": parameters}
        for name in readings:
            records[key, name] = [Record(kind=name, values=values)]
    table = plan.tables[0]  # Ti, S, B, Ti+, S+, B+
    runs = {label: [cell.training for cell in table.row(label)] for label in table.rows}
    (panel,) = parameters_figure(Results(records), runs, published=True).panels
    ours = panel.series[1]
    assert ours.label == "convit_small"
    assert ours.x == sorted(size_of(training)[0] / 1e6 for training in runs["convit_small"])
    families = {line.label.partition(",")[0] for line in panel.series[2:]}
    assert families == {"ResNet", "EfficientNet", "ViT", "T2T-ViT"}
    assert [len(line.x) for line in panel.series[2:]] == [4, 8, 2, 3]


def test_published_points_are_those_that_the_paper_on_swin_repeats():
    repeated = {  # Liu et al. 2021, Table 1a: EfficientNet B3 to B7; ViT-B/16 and L/16 at 384
        "EfficientNet, published": ((12, 81.6), (19, 82.9), (30, 83.6), (43, 84.0), (66, 84.3)),
        "ViT, published": ((86, 77.9), (307, 76.5)),
    }
    ours = {**CNNS, **TRANSFORMERS}
    assert {family: ours[family][-len(known) :] for family, known in repeated.items()} == repeated


@pytest.mark.parametrize("scale", [LAPTOP, PAPER], ids=lambda scale: scale.name)
def test_the_order_of_sizes_is_judged_from_each_to_the_next(scale):
    plan = STUDIES["sizes"].plan(scale)
    for figure, table, networks in (("13", "nonlocality", 2), ("14", "positional", 1)):
        those = [plan.contrast(c) for c in plan.claims if c.source.endswith(figure)]
        told = [contrast.cells for contrast in those if contrast.table.name == table]
        pairs = {tuple(column for _, column in cells) for cells in told}
        sizes = ("Ti", "S", "B") if scale is PAPER else ("Ti+", "S+", "B+")
        assert pairs == {(sizes[1], sizes[0]), (sizes[2], sizes[1]), (sizes[2], sizes[0])}
        assert len(told) == 3 * networks
        assert all(list(cells.values()) == [1, -1] for cells in told)


def test_early_nonlocality_is_that_of_a_tenth_of_the_training():
    plan = STUDIES["locality-in-training"].plan(PAPER)
    table = plan.tables[0]
    row = table.row(next(label for label in table.rows if label.endswith("all")))
    values = np.array([9.0, 8.0, 5.0, 6.0, 7.0]).reshape(5, 1, 1)
    record = Record(
        kind="looks", values={"epochs": [0, 5, 17, 72, 300]}, arrays={"nonlocality": values}
    )
    assert [cell.measurement.key(record) for cell in row] == [9.0, 5.0, 7.0]


def test_a_long_training_is_looked_at_early_and_late_and_a_short_one_six_times():
    paper = recipe_of(PAPER.training("DeiT-S"), 0, None)
    after = [epoch for epoch in paper.keep_epochs if epoch > 30]
    assert (len(paper.keep_epochs), after) == (12, [31, 54, 96, 170, 300])
    few = recipe_of(LAPTOP.training("DeiT-S", fraction=0.1), 0, None)  # 200 epochs of a tenth
    assert few.keep_epochs == (0, 1, 4, 14, 53, 200)
    assert len(recipe_of(DESK.training("DeiT-S"), 0, None).keep_epochs) == 6


def test_gates_and_nonlocality_are_those_of_1024_images_in_the_paper_alone():
    for name in ("locality-in-training", "sizes", "distillation"):
        for scale, options in ((PAPER, {"num_images": 1024}), (LAPTOP, {})):
            wanted = STUDIES[name].plan(scale).wanted().values()
            found = [r.options for _, read in wanted for r in read.values() if r.name == "looks"]
            assert found
            assert all(each == options for each in found)


def test_the_long_training_is_of_the_plus_models_on_cifar_100():
    plan = STUDIES["long-training"].plan(PAPER)
    trainings = [training for training, _ in plan.wanted().values()]
    assert {t.full_recipe.total_epochs for t in trainings} == {3000}
    assert {(t.data, t.image_size, t.full_recipe.name) for t in trainings} == {
        ("cifar100", 224, "deit_plus")
    }
    expected = 6 * 2.14e9 * 50_000 * 3000 / (312e12 * 0.35) / 3600
    assert hours(next(t for t in trainings if t.model == "convit_tiny_plus")) == pytest.approx(
        expected, rel=0.01
    )


def test_the_gaps_of_table_2_are_relative_gains():
    tables = {table.name: table for table in STUDIES["sample-efficiency"].plan(PAPER).tables}
    for label, published in (("top-1", tables["top1"]), ("top-5", tables["top5"])):
        vit, convit = published.rows
        for share in published.columns:
            before, after = (published.filled[row, share].paper for row in (vit, convit))
            gap = tables["gap"].filled[label, share]
            assert gap.paper == pytest.approx(100 * (after / before - 1), abs=0.6)  # whole percent
    low, high = (CellSpec(gap.training, Measurement(name, "x")) for name in ("a", "b"))
    records = [Record(kind="final", values={"a": a, "b": b}) for a, b in ((2.0, 3.0), (4.0, 3.0))]
    results = Results({(gap.training.key, FINAL.key): records})
    assert results.per_seed(gain(low, high)) == pytest.approx([50.0, -25.0])


@pytest.mark.parametrize(
    ("name", "at", "count"),
    [("sample-efficiency", 1, 10), ("sizes", 1, 6), ("long-training", 0, 6)],
)
def test_fig_11_of_the_papers_scale_has_every_size_and_share_and_its_gains(name, at, count):
    plan = STUDIES[name].plan(PAPER)
    values = {"epoch": [1, 2], "top1": [0.1, 0.2], "train_nll": [2.0, 1.0], "best_top1": 0.2}
    records = {
        (key, reading): [Record(kind="any", values=values)]
        for key, (_, readings) in plan.wanted().items()
        for reading in readings
    }
    top1, loss, gains = plan.figures[at](Results(records)).panels
    assert len(top1.series) == len(loss.series) == count
    assert gains.series[0].values == [[0.0]] * (count // 2)


def test_fig_s1_of_context_broadcasting_has_four_curves_and_leaves_out_what_was_not_read():
    plan = STUDIES["broadcasting"].plan(LAPTOP)
    values = {"epoch": [1, 2], "top1": [0.1, 0.2], "train_nll": [2, 1], "test_nll": [2, 1]}
    labels = ["top-1, %", "training loss", "test loss"]
    for more in ({}, {"top5": [0.5, 0.6]}):
        records = {
            (key, reading): [Record(kind="any", values={**values, **more})]
            for key, (_, readings) in plan.wanted().items()
            for reading in readings
        }
        panels = plan.figures[0](Results(records)).panels
        assert [panel.y_label for panel in panels] == labels[:1] + ["top-5, %"] * bool(
            more
        ) + labels[1:]


def drawn_inside(more):
    """The three figures of maps of `locality-in-training`, of made-up maps on a 4 x 4 grid."""
    plan = STUDIES["locality-in-training"].plan(PAPER)
    values = {"layers": ["a", "b"], "query": [[1.0, 2.0], [1.0, 2.0]]}
    maps = {f"mixed/{name}": np.full((2, 4, 4), 1 / 16) for name in values["layers"]}
    record = Record(kind="maps", values=values, arrays={**maps, **more})
    records = {
        (key, reading): [record]
        for key, (_, readings) in plan.wanted().items()
        for reading in readings
    }
    return [draw(Results(records)) for draw in plan.figures[3:]]


def test_figures_3_and_7_have_the_image_its_query_the_gates_and_both_strengths(tmp_path):
    image = np.zeros((64, 64, 1), np.uint8)
    gate = np.array([0.25, 0.75])
    first, trained, averaged = drawn_inside({"image": image, "gate/b": gate})
    photo, untrained, soft, sharp = first.panels
    assert [panel.title[:3] for panel in first.panels] == ["(a)", "(b)", "(c)", "(d)"]
    assert untrained.values.shape == (1, 2, 4, 4)  # the first layer alone
    np.testing.assert_allclose(soft.values[0], initial_maps((0.5,), 4, (1, 2)).maps[0])
    np.testing.assert_allclose(sharp.values[0], initial_maps((2.0,), 4, (1, 2)).maps[0])
    red = np.argwhere(photo.photographs[0, ..., 0] > 0.5)
    assert red.min(0).tolist() == [16, 32]  # the patch in row 1, column 2 of 16 pixels each
    assert red.max(0).tolist() == [31, 47]
    assert len(trained.panels) == 9  # three images: the image, ViT and ConViT
    assert trained.panels[1].labels == ((), ("0.25", "0.75"))
    assert len(averaged.panels) == 4
    item, arrays = stored(trained)
    Record(kind="figure", values=item, arrays=arrays).save(tmp_path / "kept")
    kept = load(tmp_path / "kept")
    again = restored(kept.values, kept.arrays)
    assert again.panels[1].labels == trained.panels[1].labels
    assert draw_figure(again).pixels().size
    assert "0.75" in draw_maps(again.panels[1])


def test_maps_that_were_read_before_images_were_kept_are_drawn_without():
    first, trained, _ = drawn_inside({})
    assert [panel.photographs for panel in (*first.panels, *trained.panels)] == [None] * 9


def test_windows_are_drawn_over_training_where_they_were_read():
    windows = np.zeros((2, 4, 3))
    windows[1, :, 1] = 0.5
    plan = STUDIES["locality-in-training"].plan(PAPER)
    for arrays, count in (({}, 0), ({"windows/a": windows}, 2)):
        record = Record(kind="looks", values={"epochs": [0, 8]}, arrays=arrays)
        records = {(k, r): [record] for k, (_, rs) in plan.wanted().items() for r in rs}
        figure = plan.figures[2](Results(records))
        assert len(figure.panels) == count
    assert figure.panels[0].series[0].y == pytest.approx([0.0, 0.5])
    assert "0.50 patches" in figure.reading


def test_attention_applied_n_times_multiplies_every_frequency_n_times():
    """Proposition B.1 of Park and Kim: only frequency 0 is left."""
    rows = axis_windows(window_weight(torch.zeros(1, 1, dtype=torch.float64), 1.0), (65,))[0][0]
    kernel = rows[32].roll(-32)  # far from the border: a distribution of offsets
    offset = torch.fft.fftfreq(65, 1 / 65, dtype=torch.float64)
    response = torch.fft.fft(kernel)
    repeated = torch.fft.ifft(response**5).real
    variance, five = (float((p * offset**2).sum()) for p in (kernel, repeated))
    assert five == pytest.approx(5 * variance, rel=1e-9)  # Var(a + ... + a) = N Var(a)
    assert response[0].abs() == pytest.approx(1.0, rel=1e-12)
    assert response[1:].abs().max() < 1
    assert (response[1:].abs() ** 5000).max() < 1e-3  # the mean alone is left
    shift = torch.fft.fft(torch.zeros(65, dtype=torch.float64).index_fill(0, torch.tensor(1), 1.0))
    torch.testing.assert_close(shift.abs(), torch.ones_like(offset))  # no variance: nothing goes


def test_gpsas_windows_on_a_grid_leave_the_mean_too():
    layer = GPSA(9, 9).double()
    window = layer.attention(torch.zeros(1, 49, 9).double(), (7, 7)).position[0].mean(0).detach()
    x = torch.randn(49, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    spread = [float((window.matrix_power(n) @ x).std(0).max()) for n in (0, 10, 100, 1000)]
    assert spread == sorted(spread, reverse=True)
    assert spread[-1] < 1e-6


def test_published_corruptions_next_to_the_images_are_read_at_the_papers_scale(tmp_path):
    data = f"cifar100:{tmp_path}/cifar100"
    assert published_corruptions(data) is None
    (tmp_path / "CIFAR-100-C").mkdir()
    assert published_corruptions("cifar100") is None
    found = published_corruptions(data)
    assert found.options == {"folder": str(tmp_path / "CIFAR-100-C")}
    names = {}
    for scale in (PAPER, LAPTOP):
        plan = STUDIES["alternet"].plan(replace(scale, data=data))
        names[scale.name] = {r.name for _, rs in plan.wanted().values() for r in rs.values()}
    assert "published-corruptions" in names["paper"]
    assert "published-corruptions" not in names["laptop"]


def test_published_corruptions_are_read_of_a_run(tmp_path):
    photos = write_folder(tmp_path / "photos", ["a", "b"], count=6, size=(16, 16))
    made = Training(
        model="resnet_micro",
        data=str(photos),
        recipe="laptop",
        epochs=1,
        changes={"batch_size": 4, "warmup_epochs": 0},
    )
    folder = tmp_path / "c"
    folder.mkdir()
    pixels = np.random.default_rng(0).integers(0, 256, (10, 32, 32, 3)).astype(np.uint8)
    np.save(folder / "labels.npy", np.tile(np.arange(2), 5))
    np.save(folder / "fog.npy", pixels)
    reading = Reading(name="published-corruptions", options={"folder": str(folder)})
    run_all([(made, (reading,), 0)], tmp_path, Engine())
    record = reading_of(made, reading, 0, tmp_path)
    assert record.values["corruptions"] == ["fog"]
    assert 0 <= record.values["mean"] <= 1
