"""Run training jobs side by side, one process per core with one thread each.

Small models on few cores run fastest this way: two threads on tiny tensors mostly wait for each
other. A job is a run in a folder (:func:`vitascope.training.train`), so it can be killed at any
moment and resumes when asked for again; a finished one returns at once.
"""

import heapq
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context, parent_process
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from vitascope.errors import Interrupted, UserError
from vitascope.progress import Progress
from vitascope.settings import Processes, check_value

_HANG_UP = getattr(signal, "SIGHUP", signal.SIGTERM)  # a closed terminal; not on Windows
_STOPS = (signal.SIGINT, signal.SIGTERM, _HANG_UP)


def makespan(costs: Iterable[float], processes: int) -> float:
    """Return when the last job ends if processes take the jobs in their order.

    >>> [makespan([3.0, 3.0, 2.0], processes) for processes in (1, 2, 3)]
    [8.0, 5.0, 3.0]
    """
    busy = [0.0] * processes
    for cost in costs:
        heapq.heapreplace(busy, busy[0] + cost)
    return max(busy)


def side_by_side(
    function: Callable[..., Any],
    jobs: Sequence[dict[str, Any]],
    *,
    processes: int,
    epochs: Sequence[int],
    weights: Sequence[float] | None = None,
    overhead: Sequence[float] | None = None,
    what: str = "training",
    quiet: bool = False,
) -> list[Any]:
    """``function(**job)`` for every job, which has an ``out`` folder; results in their order.

    Args:
        function: Importable by name in a new process.
        epochs: How many each job will run, for the progress bar.
        weights: What an epoch of each job costs, in seconds or any unit; all the same if left out.
        overhead: What each job costs besides its epochs, in the same unit; nothing if left out.
        what: The work, in a word, for the progress.

    Raises:
        UserError: After all others are done, if a job failed; it names the job.
    """
    check_value(processes, Processes, "processes")
    folders = [Path(job["out"]) for job in jobs]
    costs, more = weights or [1.0] * len(jobs), overhead or [0.0] * len(jobs)
    watcher = _Watcher(folders, epochs, costs, more, processes=processes, what=what, quiet=quiet)
    with _one_thread(), _told_to_stop(), watcher as watch:
        if processes == 1:
            return _in_turn(function, jobs, watch)
        context = get_context("spawn")
        count = min(processes, len(jobs))
        with ProcessPoolExecutor(count, mp_context=context, initializer=_become_worker) as pool:
            with _signals_later(), without_main():
                futures = [pool.submit(_begin, function, job) for job in jobs]
            try:
                _wait(futures, folders, watch)
            except BaseException as error:
                _stop(pool)
                if isinstance(error, KeyboardInterrupt):
                    raise KeyboardInterrupt(_stopped_with(futures)) from None
                raise
        return [future.result() for future in futures]


def _in_turn(
    function: Callable[..., Any], jobs: Sequence[dict[str, Any]], watch: "_Watcher"
) -> list[Any]:
    """One after the other, in this process."""
    done: list[Future[Any]] = []
    for job in jobs:
        with _updating_bar(watch, ended=len(done)):
            done.append(Future())
            try:
                done[-1].set_result(function(**job))
            except KeyboardInterrupt as stop:
                done[-1].set_exception(stop)
                waiting: list[Future[Any]] = [Future() for _ in jobs[len(done) :]]
                raise KeyboardInterrupt(_stopped_with([*done, *waiting])) from None
        watch.look(ended=len(done))
    return [future.result() for future in done]


@contextmanager
def _updating_bar(watch: "_Watcher", ended: int) -> Iterator[None]:
    """Bring the bar up to date every second while a job keeps this thread busy."""
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(timeout=1.0):
            watch.look(ended)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _stop(pool: ProcessPoolExecutor) -> None:
    """Tell the workers to stop, and wait until they saved; asked again meanwhile, kill them."""
    try:
        for worker in active_children():
            worker.terminate()  # a run saves itself when it is told to stop
        pool.shutdown(wait=True, cancel_futures=True)
    except KeyboardInterrupt:
        for worker in active_children():
            worker.kill()
        pool.shutdown(wait=True)


def _stopped_with(futures: Sequence["Future[Any]"]) -> str:
    """Return the message after a stop: how many runs finished or were saved.

    >>> finished, saved, waiting = Future(), Future(), Future()
    >>> finished.set_result(None)
    >>> saved.set_exception(Interrupted(Path("runs/a"), 8, "SIGTERM"))
    >>> _stopped_with([finished, saved, waiting])
    'stopped; of 3 runs 1 finished, 1 saved where it stood; run the same command to continue'
    """
    finished = saved = lost = 0
    for future in futures:
        if not future.done() or future.cancelled():
            continue  # never begun, unless its worker was killed
        error = future.exception()
        finished += error is None or (isinstance(error, Interrupted) and error.finished)
        saved += isinstance(error, Interrupted) and not error.finished
        lost += isinstance(error, BrokenProcessPool)
    parts = [f"{finished} finished"] if finished else []
    parts += [f"{saved} saved where {'it' if saved == 1 else 'they'} stood"] if saved else []
    message = f"stopped; of {len(futures)} runs {', '.join(parts)}" if parts else "stopped"
    if lost:
        message = "stopped at once; runs under way are kept to their last checkpoint"
    return f"{message}; run the same command to continue"


_idle = threading.Event()  # in a worker: no job is running
_idle.set()
_told = threading.Event()  # in a worker: to stop; it begins nothing more


def _become_worker() -> None:
    """Prepare a worker: it stops on SIGTERM or with its parent, which handles other signals."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(_HANG_UP, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, _stop_job)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _STOPS)
    watch_parent()


def watch_parent() -> None:
    """Make a worker end with the process that started it, however that one ends."""
    threading.Thread(target=_follow_parent, daemon=True).start()


def _stop_job(number: int, frame: FrameType | None) -> None:
    """Stop a worker's job; a training handles the signal itself and saves."""
    _told.set()
    if not _idle.is_set():
        raise KeyboardInterrupt


def _follow_parent() -> None:
    """Wait for the end of the parent; let a run be saved, and leave."""
    parent = parent_process()
    if parent is None:
        return
    parent.join()
    _told.set()
    os.kill(os.getpid(), signal.SIGTERM)
    _idle.wait(timeout=60.0)  # time to save a run
    os._exit(1)


def _begin(function: Callable[..., Any], job: dict[str, Any]) -> Any:
    """Run one job in a worker, unless the worker was stopped while the job waited."""
    _idle.clear()
    try:
        if _told.is_set():
            raise KeyboardInterrupt
        return function(**job)
    except KeyboardInterrupt:
        _told.set()
        raise
    finally:
        _idle.set()


def _wait(futures: Sequence["Future[Any]"], folders: Sequence[Path], watch: "_Watcher") -> None:
    waiting = set(futures)
    while waiting:
        _, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        watch.look(ended=len(futures) - len(waiting))
    failed = [(f.exception(), folder) for f, folder in zip(futures, folders, strict=True)]
    failed.sort(key=lambda pair: isinstance(pair[0], BrokenProcessPool))  # the cause comes first
    for error, folder in failed:
        if isinstance(error, BrokenProcessPool):
            raise UserError(
                "a worker process died, perhaps for want of memory; finished runs are kept, and "
                "run the same command to continue, with --processes 1 if memory is short"
            ) from None
        if isinstance(error, UserError):
            raise UserError(f"{folder}: {error}") from None
        if error is not None:
            raise error


@contextmanager
def _told_to_stop() -> Iterator[None]:
    """Take SIGTERM and SIGHUP like Ctrl-C; ignored signals (``nohup``) stay ignored."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heard = [
        number
        for number in {signal.SIGTERM, _HANG_UP}
        if signal.getsignal(number) is not signal.SIG_IGN
    ]
    before = {number: signal.signal(number, signal.default_int_handler) for number in heard}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _signals_later() -> Iterator[None]:
    """Signals wait until the end of the block; in processes begun there, until they are ready."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextmanager
def without_main() -> Iterator[None]:
    """Processes begun in the block do not run the caller's script again.

    A spawned process first runs the script that began it, so one without ``if __name__ ==
    "__main__"`` would begin everything once more. Our workers import what they need by name.
    """
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _one_thread() -> Iterator[None]:
    """New processes start with one thread; this one keeps its own."""
    before = {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
    os.environ.update(dict.fromkeys(before, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


class _Watcher:
    """Follows the epochs that the jobs have written down, each of which counts its weight.

    What is left is when the last job will end, not the sum of all: at the end some processes have
    nothing more to do.
    """

    def __init__(
        self,
        folders: Sequence[Path],
        epochs: Sequence[int],
        weights: Sequence[float],
        overhead: Sequence[float],
        *,
        processes: int,
        what: str = "training",
        quiet: bool,
    ):
        self.jobs = list(zip(folders, epochs, weights, overhead, strict=True))
        self.processes = processes
        self.total = makespan((n * weight + more for _, n, weight, more in self.jobs), processes)
        done = self.total - self.left(ended=0)
        self.bar = Progress(what, self.total, start=done, quiet=quiet)

    def left(self, ended: int) -> float:
        """Until the last job ends, in the unit of the weights; so many jobs have ended."""
        costs = []
        for folder, epochs, weight, overhead in self.jobs:
            ahead = max(0, epochs - self._lines(folder / "metrics.jsonl"))
            if ahead == 0 and ended > 0:
                ended -= 1
            else:
                costs.append(ahead * weight + overhead)
        return makespan(costs, self.processes)

    @staticmethod
    def _lines(path: Path) -> int:
        try:
            return path.read_bytes().count(b"\n")
        except OSError:
            return 0

    def look(self, ended: int) -> None:
        """Bring the bar up to date; so many jobs have ended."""
        done = self.total - self.left(ended)
        self.bar.show("", max(done, self.bar.done), self.total)

    def __enter__(self) -> "_Watcher":
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.__exit__()
