"""Runs as jobs of a SLURM cluster, through submitit.

submitit (https://github.com/facebookincubator/submitit) writes the batch script and the pickles of
a job. A run on several GPUs is a ``torchrun`` of ``vitascope train``; its measurements follow in
the same job, on the first GPU. A job that hits its time limit is submitted again by the same
command, and resumes.

Jobs are followed by their result files and by ``squeue``, so that no accounting database is needed:
a job that has left the queue without a result has failed or was cancelled.
"""

import logging
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from io import StringIO
from pathlib import Path
from time import monotonic, sleep
from typing import Any

from vitascope.errors import UserError, reason
from vitascope.runs.cache import command, images_of, train_and_read
from vitascope.settings import pairs

FIRST_PORT, NUM_PORTS = 10_000, 20_000  # below the ports that systems give out by themselves
_EVERY = 2.0  # seconds between two looks at the queue
_LATE = 30.0  # seconds that a shared file system may take to show the result of a finished job
_CAUSE = re.compile(r"^(vitascope: .+|[\w.]*(Error|Exception|Killed)\b.*)$", re.MULTILINE)


def submit(jobs: Sequence[dict[str, Any]], out: Path, engine: Any) -> None:
    """Submit one array of jobs and wait for it.

    Args:
        jobs: Arguments of :func:`vitascope.runs.cache.train_and_read`.
        out: Folder of the runs; scripts and logs go to ``out/slurm``.
        engine: A :class:`vitascope.runs.executor.Engine`.

    Raises:
        UserError: If there is no SLURM, it refuses the jobs, or a job failed; with the cause.
        KeyboardInterrupt: After Ctrl-C; the message says how to cancel the jobs.
    """
    launcher = engine.launcher(f"{shlex.quote(sys.executable)} -m torch.distributed.run")
    with _messages_on_stderr():
        running = _submitted(run_job, [(job, launcher) for job in jobs], out, engine)
        failed = _wait(running, engine)
    if failed:
        first, cause = next(iter(failed.items()))
        raise UserError(
            f"{len(failed)} of {len(jobs)} runs failed, first {jobs[first]['out']}: {cause}; logs "
            f"are in {out / 'slurm'}; run the same command to continue"
        )


def submit_command(line: str, out: Path, engine: Any) -> None:
    """Run one `vitascope train` as a job, and wait for it.

    Raises:
        UserError: As :func:`submit`.
    """
    launcher = engine.launcher(f"{shlex.quote(sys.executable)} -m torch.distributed.run")
    program = launcher or f"{shlex.quote(sys.executable)} -m"
    with _messages_on_stderr():
        running = _submitted(_run_line, [(f"{program} {line}",)], out, engine)
        failed = _wait(running, engine)
    if failed:
        raise UserError(
            f"the job failed: {failed[0]}; its logs are in {out / 'slurm'}; run the same command "
            "with --resume to continue"
        )


def _submitted(function: Any, calls: Sequence[tuple[Any, ...]], out: Path, engine: Any) -> Any:
    try:
        import submitit
    except ImportError:
        raise UserError(
            "the slurm engine needs submitit: pip install 'vitascope[cluster]'"
        ) from None
    folder = out / "slurm"
    before = set(folder.glob("*")) if folder.exists() else set()
    try:
        executor = submitit.AutoExecutor(folder=folder, cluster=engine.cluster or "slurm")
    except RuntimeError as error:
        raise UserError(f"no SLURM here: {error}; use --engine local") from None
    try:
        executor.update_parameters(
            timeout_min=max(1, round(60 * engine.hours)),
            nodes=engine.nodes,
            tasks_per_node=1,
            gpus_per_node=engine.gpus,
            name="vitascope",
            **pairs(engine.slurm, "--slurm"),
        )
        with redirect_stderr(StringIO()):  # sbatch's own lines are in the error
            return executor.map_array(function, *zip(*calls, strict=True))
    except Exception as error:  # submitit's errors are of many types
        for path in set(folder.glob("*")) - before:
            path.unlink()
        hint = f" (--gpus {engine.gpus}: give 0 for CPUs)" if engine.gpus else ""
        raise UserError(f"SLURM refused the jobs: {_sentence(error)}{hint}") from None


def _sentence(error: Exception) -> str:
    """Return what sbatch or submitit said, without its traceback and stars."""
    lines = [line.strip(" *-|") for line in str(error).splitlines()]
    refusals = [line for line in lines if line.lower().startswith(("sbatch:", "unavailable"))]
    return reason(Exception(" ".join(refusals or [line for line in lines if line][:3])))


def _wait(running: Sequence[Any], engine: Any) -> dict[int, str]:
    """Wait for all jobs; return the causes of those that failed, by their number."""
    waiting, gone, failed = dict(enumerate(running)), dict[int, float](), dict[int, str]()
    try:
        while waiting:
            queued = None if engine.cluster else _queued(running)
            for number, job in list(waiting.items()):
                if _has_result(job, engine):
                    error = _error_of(job)
                    if error is not None and queued is not None and job.job_id in queued:
                        continue  # SLURM starts it again (requeue)
                    if error is not None:
                        failed[number] = _cause(job, error)
                    del waiting[number]
                elif queued is not None and job.job_id not in queued:
                    since = gone.setdefault(number, monotonic())
                    if monotonic() - since > _LATE:
                        why = "it left the queue without a result; was it cancelled?"
                        failed[number] = _cause(job, why)
                        del waiting[number]
            if waiting:
                sleep(_EVERY)
    except KeyboardInterrupt:
        raise KeyboardInterrupt(_stopped(running, list(waiting.values()), engine)) from None
    return failed


def _has_result(job: Any, engine: Any) -> bool:
    if engine.cluster:  # submitit's own executors on this machine
        return bool(job.done())
    results = [task.paths.result_pickle.exists() for task in job._sub_jobs or [job]]
    return all(results)


def _queued(running: Sequence[Any]) -> set[str]:
    """Return the ids of the jobs that SLURM still has, as ARRAY_TASK."""
    arrays = sorted({job.job_id.split("_")[0] for job in running})
    asked = [
        "squeue",
        "--noheader",
        "--array",
        "--format",
        "%F_%K %i %T",
        "--jobs",
        ",".join(arrays),
    ]
    answer = subprocess.run(asked, capture_output=True, text=True, check=False)
    if answer.returncode and "Invalid job id" not in answer.stderr:
        return {job.job_id for job in running}  # the controller does not answer: ask again later
    ended = ("COMPLETED", "CANCELLED", "FAILED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")
    rows = [line.split() for line in answer.stdout.splitlines() if line.strip()]
    alive = [row for row in rows if row[-1] not in ended]
    return {name for row in alive for name in row[:-1]}


def _error_of(job: Any) -> Exception | None:
    try:
        job.results()  # one per node
    except Exception as error:  # submitit wraps whatever happened there
        return error
    return None


def _cause(job: Any, error: object) -> str:
    """Return the first real error of a job's log; without one, the last line of the exception."""
    try:
        log = Path(job.paths.stderr).read_text(errors="replace")
    except OSError:
        log = ""
    own = [match[0] for match in _CAUSE.finditer(log)]
    ours = [line for line in own if line.startswith("vitascope: ")]
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    first = (ours or own or lines[-1:] or ["no reason was given"])[0]
    return reason(Exception(first.removeprefix("vitascope: ")))


def _stopped(running: Sequence[Any], waiting: Sequence[Any], engine: Any) -> str:
    """Return what happens to the jobs after Ctrl-C, and cancel them if that was asked for."""
    arrays = " ".join(sorted({job.job_id.split("_")[0] for job in running}))
    if engine.cluster:
        return "stopped waiting for the jobs"
    if engine.cancel:
        subprocess.run(["scancel", *arrays.split()], check=False, capture_output=True)
        return f"cancelled {len(waiting)} jobs; run the same command to continue"
    return (
        f"{len(waiting)} jobs continue in SLURM; cancel them with: scancel {arrays}; the same "
        "command uses what they finish"
    )


@contextmanager
def _messages_on_stderr() -> Iterator[None]:
    """Send submitit's messages to stderr: stdout is for the result."""
    with redirect_stdout(sys.stderr):
        yield
    for handler in logging.getLogger("submitit").handlers:
        if isinstance(handler, logging.StreamHandler):
            handler.setStream(sys.stderr)


def meeting_point(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the id, host and port at which the nodes of a job meet.

    Port and id come from the job's id, so that jobs that share a node do not meet each other.

    >>> meeting_point({"SLURM_JOB_ID": "1234", "SLURM_LAUNCH_NODE_IPADDR": "10.0.0.7"})
    {'$ID': '1234', '$HEAD': '10.0.0.7', '$PORT': '11234'}
    """
    job = environment.get("SLURM_JOB_ID", "0")
    port = FIRST_PORT + int(job) % NUM_PORTS
    head = environment.get("SLURM_LAUNCH_NODE_IPADDR", "localhost")
    return {"$ID": job, "$HEAD": head, "$PORT": str(port)}


def _run_line(line: str) -> None:
    """Run a command line on the node of a job, with the job's meeting point filled in."""
    for name, value in meeting_point(os.environ).items():
        line = line.replace(name, value)
    ended = subprocess.run(shlex.split(line), check=False)
    if ended.returncode:
        raise RuntimeError(f"the command ended with code {ended.returncode}: {line}")


def run_job(job: dict[str, Any], launcher: str) -> None:
    """Train on all GPUs of a node, then measure."""
    if launcher and not (job["out"] / "record.json").exists():
        training = job["training"]
        _run_line(command(training, job["seed"], job["grid"], images_of(training), launcher))
    if os.environ.get("SLURM_PROCID", "0") == "0":  # of several nodes the first measures
        train_and_read(**job)
