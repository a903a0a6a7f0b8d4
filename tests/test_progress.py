"""Progress on a terminal, in a log, and when nobody wants it."""

import io
import sys
from time import sleep
from types import SimpleNamespace

import pytest

from vitascope import progress
from vitascope.processes import _in_turn, _Watcher
from vitascope.progress import Progress


def stream_of(terminal):
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    return stream


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until it is set."""
    now = [0.0]
    monkeypatch.setattr(progress, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(("terminal", "quiet"), [(True, False), (False, False), (True, True)])
def test_progress_is_a_bar_plain_lines_or_nothing(terminal, quiet):
    stream = stream_of(terminal)
    with Progress("training", 200, unit="img", quiet=quiet, stream=stream) as bar:
        bar.advance(100)
        bar.tell("half of it")
    written = stream.getvalue()
    assert ("half of it" in written) is not quiet
    assert ("img/s" in written) is (terminal and not quiet)
    assert quiet or terminal or written == "half of it\n"


def test_a_notebook_has_a_bar(monkeypatch):
    shell = SimpleNamespace(kernel=object(), config={})
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    stream = stream_of(terminal=False)
    with Progress("training", 200, stream=stream) as bar:
        bar.advance(100)
    assert "%|" in stream.getvalue()


def test_a_log_gets_a_line_every_half_minute_with_the_time_left(clock):
    stream = stream_of(terminal=False)
    with Progress("training", 400, start=100, stream=stream) as bar:
        bar.advance(100)
        assert stream.getvalue() == ""
        clock[0] = 31.0
        bar.advance(50, "the first half")
        bar.advance(50)
        clock[0] = 300.0
        bar.advance(10)
    first, second = stream.getvalue().splitlines()
    # after the first advance 50 took 31 s, so the other 150 take three times as long
    assert first == "training: 62 %, 2 min left, the first half"
    # 110 of them took 300 s, the other 90 take 245 s
    assert second == "training: 78 %, 4 min left"


def test_the_time_left_is_right_after_a_tenth_though_it_took_long_to_begin(clock):
    """A minute of preparation, then 100 s of work: at a tenth 90 s are left."""
    with Progress("training", 100, stream=stream_of(terminal=False)) as bar:
        for second in range(1, 12):
            clock[0] = 60.0 + second
            bar.advance(1)
        assert bar.line() == "training: 11 %, 89 s left"


def test_the_time_left_falls_within_a_step_and_grows_when_the_step_is_late(clock):
    """Steps of 10 s: after four of ten, counted from the first, 60 s are left."""
    with Progress("training", 10, stream=stream_of(terminal=False)) as bar:
        for step in range(1, 5):
            clock[0] = 10.0 * step
            bar.advance(1)
        found = []
        for clock[0] in (40.0, 45.0, 50.0, 90.0):
            found.append(bar.left)
        assert found == pytest.approx([60.0, 55.0, 50.0, 100.0])


def test_the_length_may_change_on_the_way():
    stream = stream_of(terminal=True)
    with Progress("inspecting", stream=stream) as bar:
        bar.show("images", 1, 2)
        bar.show("lesion", 2, 8)
        assert (bar.done, bar.total) == (2, 8)
        assert (bar.bar.n, bar.bar.total) == (2, 8)


def test_runs_count_by_what_an_epoch_of_each_costs(tmp_path):
    folders = [tmp_path / "small", tmp_path / "large"]
    for folder in folders:
        folder.mkdir()
    watcher = _Watcher(folders, [4, 4], [1.0, 9.0], [0.0, 0.0], processes=1, quiet=True)
    (folders[0] / "metrics.jsonl").write_text("{}\n{}\n")
    watcher.look(ended=0)
    assert (watcher.bar.done, watcher.bar.total) == (2.0, 40.0)
    (folders[1] / "metrics.jsonl").write_text("{}\n{}\n")
    watcher.look(ended=0)
    assert watcher.bar.done == 20.0


def test_one_process_is_followed_while_a_run_goes_on(tmp_path):
    watcher = _Watcher([tmp_path], [4], [1.0], [0.0], processes=1, quiet=True)

    def train():
        (tmp_path / "metrics.jsonl").write_text("{}\n")
        for _ in range(100):  # until somebody has looked
            if watcher.bar.done:
                break
            sleep(0.1)
        return watcher.bar.done

    assert _in_turn(train, [{}], watcher) == [1.0]


def played(folder, clock, runs, *, processes, overhead):
    """Run made-up jobs by the clock, and compare the time left with the true one.

    Args:
        runs: Of each job, in order: epochs, planned and true seconds of an epoch.
        overhead: Planned and true seconds of a job before its first epoch.

    Returns: Share of the time gone, seconds said to be left, seconds truly left; every second.
    """
    folders = [folder / str(number) for number in range(len(runs))]
    for each in folders:
        each.mkdir()
    epochs, planned, true = zip(*runs, strict=True)
    more = [overhead[0]] * len(runs)
    watcher = _Watcher(folders, epochs, planned, more, processes=processes, quiet=True)
    free, written, ends = [0.0] * processes, [], []
    for each, count, seconds in zip(folders, epochs, true, strict=True):
        start = min(free)
        lines = [start + overhead[1] + (number + 1) * seconds for number in range(count)]
        free[free.index(start)] = lines[-1]
        ends.append(lines[-1])
        written.append((each / "metrics.jsonl", lines))
    found, last = [], max(ends)
    while clock[0] < last - 1:
        clock[0] += 1.0
        for path, lines in written:
            path.write_text("{}\n" * sum(at <= clock[0] for at in lines))
        watcher.look(ended=sum(at <= clock[0] for at in ends))
        found.append((clock[0] / last, watcher.bar.left, last - clock[0]))
    return found


@pytest.mark.parametrize(
    ("runs", "processes"),
    [
        ([(20, 4.0, 4.2)] * 3 + [(20, 2.0, 1.9)] * 3, 2),  # one process ends long before the other
        ([(20, 4.0, 4.0)] * 3 + [(20, 1.0, 1.2)] * 3, 1),
        ([(30, 5.0, 6.0)] * 3, 2),  # the third run is alone
        ([(30, 3.0, 3.0), (20, 3.0, 3.6), (20, 3.0, 3.6), (40, 1.0, 1.2), (40, 0.5, 0.6)], 4),
    ],
)
def test_the_time_left_is_right_within_a_quarter_after_the_first_tenth(
    tmp_path, clock, runs, processes
):
    """Also where a process has nothing more to do at the end, and steps were timed wrongly."""
    games = played(tmp_path, clock, runs, processes=processes, overhead=(2.0, 4.0))
    for share, said, true in games:
        if share >= 0.1 and true > 10:  # two epochs, in which nothing is written
            assert said == pytest.approx(true, rel=0.25, abs=5.0), share
