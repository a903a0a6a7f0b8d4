"""Run training jobs side by side, one process a core with one thread each.

Small models on few cores run fastest this way: two threads on tiny tensors mostly wait for each
other. A job is a run in a folder (:func:`vitascope.train.train`), so it can be killed at any moment
and goes on when it is asked for again; a finished one returns at once.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from pathlib import Path
from typing import Any

from tqdm import tqdm

from vitascope.errors import UserError

__all__ = ["side_by_side"]


def side_by_side(
    function: Callable[..., Any],
    jobs: Sequence[dict[str, Any]],
    *,
    processes: int,
    epochs: Sequence[int],
    quiet: bool = False,
) -> list[Any]:
    """``function(**job)`` for every job, which has an ``out`` folder; results in their order.

    Args:
        function: Importable by name in a new process.
        epochs: How many each job will run, for the progress bar.

    Raises:
        UserError: After all others are done, if a job failed; it names the job.
    """
    folders = [Path(job["out"]) for job in jobs]
    if processes < 1:
        raise UserError(f"cannot run jobs in {processes} processes; give 1 or more")
    with _one_thread(), _goes_on(), _Watch(folders, epochs, quiet) as watch:
        if processes == 1:
            return [_one(function, job, watch) for job in jobs]
        context = get_context("spawn")
        count = min(processes, len(jobs))
        with ProcessPoolExecutor(count, mp_context=context, initializer=_follow_parent) as pool:
            futures = [pool.submit(_begin, function, job) for job in jobs]
            try:
                _wait(futures, folders, watch)
            except BaseException:
                for worker in active_children():
                    worker.terminate()  # a run saves itself when it is told to stop
                pool.shutdown(wait=True, cancel_futures=True)
                raise
        return [future.result() for future in futures]


def _follow_parent() -> None:
    """In a worker: stop, and save, when the process that wanted the result is gone."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(30.0)  # to save a run; then nobody waits for this process any more
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_stopped = threading.Event()  # in a worker that was told to stop: it begins nothing more


def _begin(function: Callable[..., Any], job: dict[str, Any]) -> Any:
    """In a worker: one job, unless an earlier one was interrupted; the next waits in its queue."""
    if _stopped.is_set():
        raise KeyboardInterrupt
    try:
        return function(**job)
    except KeyboardInterrupt:
        _stopped.set()
        raise


def _one(function: Callable[..., Any], job: dict[str, Any], watch: "_Watch") -> Any:
    result = function(**job)
    watch.look()
    return result


def _wait(futures: Sequence["Future[Any]"], folders: Sequence[Path], watch: "_Watch") -> None:
    waiting = set(futures)
    while waiting:
        _, waiting = wait(waiting, timeout=1.0, return_when=FIRST_COMPLETED)
        watch.look()
    failed = [(f.exception(), folder) for f, folder in zip(futures, folders, strict=True)]
    failed.sort(key=lambda pair: isinstance(pair[0], BrokenProcessPool))  # the cause comes first
    for error, folder in failed:
        if isinstance(error, BrokenProcessPool):
            raise UserError(
                "a worker process died, perhaps for want of memory; finished runs are kept, and "
                "the same command goes on, with --processes 1 if need be"
            ) from None
        if isinstance(error, UserError):
            raise UserError(f"{folder}: {error}") from None
        if error is not None:
            raise error


@contextmanager
def _goes_on() -> Iterator[None]:
    """An interruption says that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        raise KeyboardInterrupt("stopped; all runs are saved, the same command goes on") from None


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


class _Watch:
    """Counts the epochs that the jobs have written down."""

    def __init__(self, folders: Sequence[Path], epochs: Sequence[int], quiet: bool):
        self.folders, self.epochs = folders, epochs
        self.quiet, self.told = quiet, time.monotonic()
        self.start = self.said = self.done()
        self.bar = None
        if not quiet and sys.stderr.isatty():
            total = sum(epochs)
            self.bar = tqdm(total=total, initial=self.start, unit="epoch", dynamic_ncols=True)

    def done(self) -> int:
        """Epochs so far, over all jobs."""
        return sum(self._lines(folder / "metrics.jsonl") for folder in self.folders)

    @staticmethod
    def _lines(path: Path) -> int:
        try:
            return path.read_bytes().count(b"\n")
        except OSError:
            return 0

    def look(self) -> None:
        """Bring the bar up to date; without a terminal, a line every half minute."""
        if self.quiet:
            return
        done = self.done()
        if self.bar is not None:
            self.bar.update(done - self.bar.n)
        elif done > self.said and (
            time.monotonic() - self.told > 30 or done >= sum(self.epochs)
        ):  # once at the end: readings may follow
            self.told, self.said = time.monotonic(), done
            print(f"{done} of {sum(self.epochs)} epochs", file=sys.stderr, flush=True)

    def __enter__(self) -> "_Watch":
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.close()
