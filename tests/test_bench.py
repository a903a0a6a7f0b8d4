"""The stopwatch itself, and the benchmarks against peers."""

import time

import pytest
import torch

from benchmarks.__main__ import main as benchmark
from benchmarks.capture import time_capture
from benchmarks.growth import growth_figure, time_growth
from benchmarks.hessian import by_magnitude, time_hessian, worst_error
from benchmarks.inspect import time_inspect
from benchmarks.machine_share import machine_shares, training_flops
from benchmarks.neighborhood import DenseMaskedAttention, time_neighborhood
from benchmarks.tables import bench_tables
from benchmarks.training import time_training
from vitascope.layers import NeighborhoodAttention
from vitascope.measure.timing import peak_memory, take_turns
from vitascope.record import load
from vitascope.threads import running_on


def test_the_slower_candidate_has_the_smaller_speed():
    times = take_turns(
        {"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.02)},
        rounds=3,
        least_seconds=0.0,
        clock=time.perf_counter,
    )
    low, middle, high = times.speed("short", "long")
    assert low <= middle <= high
    assert middle > 2
    assert len(times.seconds["short"]) == 3


@pytest.mark.parametrize(("threads", "waiting_counts"), [(1, False), (2, True)])
def test_on_one_thread_only_the_work_itself_counts(threads, waiting_counts):
    def work():
        end = time.process_time() + 0.005
        while time.process_time() < end:
            pass

    def work_and_wait():
        work()
        time.sleep(0.1)

    with running_on(threads):
        times = take_turns({"a": work, "b": work_and_wait}, rounds=3, least_seconds=0.0)
    assert (times.median("b") > 0.1) == waiting_counts


def test_peak_memory_counts_what_lives_at_once():
    def at_once():
        a = torch.zeros(1000, 1000)
        b = torch.zeros(1000, 1000)
        return a, b

    def one_after_the_other():
        a = torch.zeros(1000, 1000)
        del a
        torch.zeros(1000, 1000)

    assert peak_memory(at_once) == pytest.approx(8e6, rel=0.05)
    assert peak_memory(one_after_the_other) == pytest.approx(4e6, rel=0.05)


def test_the_dense_peer_of_neighbourhood_attention_does_the_same_work():
    layer = NeighborhoodAttention(12, 3, kernel_size=5)
    peer = DenseMaskedAttention(12, 3, kernel_size=5)
    peer.load_state_dict(layer.state_dict())
    x = torch.randn(2, 400, 12)
    torch.testing.assert_close(peer(x, (20, 20)), layer(x, (20, 20)))
    peer.bias = peer.make_bias((20, 20))
    torch.testing.assert_close(peer(x, (20, 20)), layer(x, (20, 20)))


@pytest.mark.slow
def test_memory_of_neighbourhood_attention_grows_with_the_patches():
    result = time_neighborhood(grids=(20, 40), kernel_sizes=(3,), rounds=1)
    assert len(result.speed) == len(result.memory) == 4  # two grids, with and without backward
    assert result.to_record().kind == "bench-neighborhood"
    for mode in (0, 1):
        (_, small, small_peer), (_, large, large_peer) = result.memory[mode::2]
        assert large < 4.5 * small  # linear in the patches: 4
        assert large_peer > 5 * small_peer  # the mask alone: 16; what is freed when varies a little
        assert large < large_peer


def test_the_benchmark_of_maps_compares_the_same_maps():
    result = time_capture(batch_size=1, depth=4, rounds=1)
    assert max(result.difference.values()) < 1e-5
    assert len(result.difference) == len(result.speed) == 3
    assert [len(row) for row in result.cost] == [4] * 5
    (_, all_maps, _), (_, one_number, _) = result.memory
    assert one_number < all_maps
    tables = list(bench_tables(result.to_record()))
    assert [table.corner for table in tables] == ["Ours / peer", "Work", "Work"]


def test_instruments_alone_and_together_are_timed_next_to_a_plain_pass():
    result = time_inspect(
        models=("vit_tiny_patch16_224",), images=8, num_images=16, batch_size=8, depth=1, rounds=1
    )
    rows = [label for label, *_ in result.cost if label.endswith("224 px")]
    assert rows[0].startswith("nonlocality, ")
    assert rows[-1].startswith("all instruments, ")
    assert len(rows) == 8
    ((_, instruments, plain),) = result.memory
    assert instruments > plain > 0


def test_the_cost_of_every_model_is_measured_against_what_grows():
    result = time_growth(images=(4,), grids=(2, 4), depths=(1,), rounds=1)
    record = result.to_record()
    assert len(record.values["points"]) == 4 * 2 * 3  # sizes, works, models
    assert all(seconds > 0 < held for *_, seconds, held in record.values["points"])
    (table,) = bench_tables(record)
    assert len(table.rows) == 24
    figure = growth_figure(record, "training")
    assert [panel.y_label for panel in figure.panels] == ["seconds"] * 3 + ["memory (MB)"] * 3
    assert {line.label for line in figure.panels[1].series} == {"ConViT", "ViT", "timm's ConViT"}


@pytest.mark.slow
def test_the_benchmark_of_spectra_reaches_the_accuracies_it_names():
    result = time_hessian(depth=1, width=6, batch_size=2, rounds=1, warm_batches=2)
    errors = {who: error for who, error, *_ in result.reached}
    counts = {who: products for who, _, _, products, _ in result.reached}
    assert errors["ours, 1 %"] < 0.01
    assert errors["ours, 0.01 %"] < 1e-4
    assert errors["PyHessian, 1 %"] < 0.05
    assert counts["ours, 0.01 %"] < counts["PyHessian, 0.01 %"]
    assert [len(row) for row in result.products.values()] == [2, 2]
    assert result.to_record().kind == "bench-hessian"


def test_errors_of_eigenvalues_are_of_their_magnitudes():
    found = by_magnitude([2.0, -4.04, 1.0])
    assert found.tolist() == [-4.04, 2.0, 1.0]
    assert worst_error(found, by_magnitude([4.0, -2.0, 1.0])) == pytest.approx(0.01)


def test_a_share_of_the_machine_is_arithmetic_over_time():
    torch.manual_seed(0)
    layer = torch.nn.Linear(8, 4)
    assert training_flops(layer, torch.randn(5, 8)) == 3 * 5 * 2 * 8 * 4
    ((label, rate, gflops, low, middle, high),) = machine_shares(
        {"small": "resnet_micro"}, batch_size=2, rounds=1
    )
    assert label == "small"
    assert 0 < low <= middle <= high < 1.5
    assert rate > 0 < gflops


def test_a_subject_prints_ratios_and_keeps_a_record(tmp_path, capsys):
    words = ["gpsa", "--models", "convit_tiny", "--grids", "4", "--rounds", "1"]
    words += ["--threads", "1", "--batch-size", "1", "--out", str(tmp_path / "b")]
    assert benchmark(words) == 0
    assert "same-width ViT" in capsys.readouterr().out
    record = load(tmp_path / "b")
    assert record.config["threads"] == [1]
    assert record.made["command"] == f"python -m benchmarks {' '.join(words)}"
    peers = {row[0].split(" / ")[1].split(",")[0] for row in record.values["speed"]}
    assert peers == {"timm's ConViT", "same-width ViT", "timm's GPSA"}
    assert all(ours > 0 and theirs > 0 for _, ours, theirs in record.values["memory"])


@pytest.mark.parametrize(
    "words", [["gpsa", "--models", "resnet18"], ["hessian", "--grids", "4"], ["nothing"]]
)
def test_a_benchmark_refuses_what_it_does_not_know(words, capsys):
    with pytest.raises(SystemExit) as stop:
        benchmark(words)
    assert stop.value.code == 2
    assert words[-1] in capsys.readouterr().err or "--grids" in words


@pytest.mark.slow
def test_the_training_loop_is_timed_next_to_its_peers(tmp_path):
    one = {"ViT": "vit_micro"}
    result = time_training(batch_size=8, steps=2, rounds=1, shares_of=one)
    assert [row[0] for row in result.shares] == ["ViT"]
    assert [row[0].split(" / ")[1] for row in result.speed] == ["bare steps", "timm steps"] * 2
    assert all(rate > 0 for rate in result.images_per_second.values())
    assert load(result.to_record().save(tmp_path / "t")).kind == "bench-training"
