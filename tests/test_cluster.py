"""A real SLURM on this machine: jobs with and without GPUs, several nodes, refusals, cancelling.

`make cluster` installs Debian's slurm-wlm and munge and runs these tests as root. The fixture
starts munged, slurmctld and two slurmd whose GPUs are empty files, and stops them afterwards. Ranks
run on CPUs with gloo.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from safetensors.numpy import load_file

from vitascope.training import load_run

pytestmark = pytest.mark.cluster

CONF = """
ClusterName=vitascope
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={home}/state
SlurmdSpoolDir={home}/spool/%n
SlurmctldPidFile={home}/slurmctld.pid
SlurmdPidFile={home}/slurmd.%n.pid
SlurmctldLogFile={home}/slurmctld.log
SlurmdLogFile={home}/slurmd.%n.log
SlurmctldPort=16817
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
MpiDefault=none
KillWait=5
NodeName=n[1-2] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17002] CPUs={cpus} Gres=gpu:2
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=YES
"""
TRAIN = ["train", "--model", "vit_micro", "--data", "digits", "--no-tracking", "--engine", "slurm"]


def wait_until(ready, seconds=60.0):
    for _ in range(int(seconds / 0.25)):
        if ready():
            return
        time.sleep(0.25)
    raise AssertionError("this took too long")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    home = tmp_path_factory.mktemp("slurm")
    for folder in ("state", "spool/n1", "spool/n2"):
        (home / folder).mkdir(parents=True)
    for number in (0, 1):
        (home / f"gpu{number}").touch()
    host, cpus = socket.gethostname().partition(".")[0], os.cpu_count()
    (home / "slurm.conf").write_text(CONF.format(host=host, home=home, cpus=cpus))
    (home / "gres.conf").write_text(f"NodeName=n[1-2] Name=gpu File={home}/gpu[0-1]\n")
    own_munge = not Path("/run/munge/munge.socket.2").exists()
    if own_munge:
        os.makedirs("/run/munge", exist_ok=True)
        shutil.chown("/run/munge", "munge", "munge")
        subprocess.run(["runuser", "-u", "munge", "--", "munged"], check=True)
    environment = {**os.environ, "SLURM_CONF": str(home / "slurm.conf"), "OMP_NUM_THREADS": "1"}
    subprocess.run(["slurmctld"], check=True, env=environment)
    for node in ("n1", "n2"):
        subprocess.run(["slurmd", "-N", node], check=True, env=environment)

    def states():
        asked = ["sinfo", "--noheader", "--Node", "--format", "%T"]
        return subprocess.run(asked, capture_output=True, text=True, env=environment).stdout.split()

    try:
        wait_until(lambda: states() == ["idle", "idle"])
        yield environment
    finally:
        subprocess.run(["scancel", "--user", "root"], env=environment)
        pids = [int(path.read_text()) for path in home.glob("*.pid")]
        for pid in pids:
            os.kill(pid, signal.SIGTERM)
        if own_munge:
            subprocess.run(["munged", "--stop"])


def vitascope(slurm, folder, *words, wait=True):
    started = subprocess.Popen(
        [sys.executable, "-m", "vitascope", *words],
        cwd=folder, env=slurm, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    if not wait:
        return started
    out, err = started.communicate(timeout=300)
    return started.returncode, out, err


def queue(slurm):
    asked = ["squeue", "--noheader", "--format", "%T"]
    return subprocess.run(asked, capture_output=True, text=True, env=slurm).stdout.split()


def test_a_job_on_cpus_gives_the_weights_of_a_run_on_this_machine(slurm, tmp_path):
    code, out, err = vitascope(slurm, tmp_path, *TRAIN, "--epochs=1", "--gpus=0", "--out=there")
    assert code == 0, err
    assert "top-1" in out
    local = ["train", "--model=vit_micro", "--data=digits", "--epochs=1", "--no-tracking"]
    code, _, err = vitascope(slurm, tmp_path, *local, "--out=here")
    assert code == 0, err
    there, here = (load_file(tmp_path / name / "model.safetensors") for name in ("there", "here"))
    assert all((there[name] == here[name]).all() for name in here)


def test_two_gpus_are_two_processes_without_an_environment_that_is_activated(slurm, tmp_path):
    bare = {**slurm, "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}
    code, _, err = vitascope(bare, tmp_path, *TRAIN, "--epochs=1", "--gpus=2", "--out=run")
    assert code == 0, err
    assert load_run(tmp_path / "run").world_size == 2


def test_two_runs_on_two_nodes_at_once_do_not_meet_each_other(slurm, tmp_path):
    many = [*TRAIN, "--epochs=1", "--gpus=1", "--nodes=2"]
    runs = [
        vitascope(slurm, tmp_path, *many, f"--seed={seed}", f"--out=run{seed}", wait=False)
        for seed in (0, 1)
    ]
    for seed, run in enumerate(runs):
        _, err = run.communicate(timeout=300)
        assert run.returncode == 0, err
        assert load_run(tmp_path / f"run{seed}").world_size == 2


@pytest.mark.parametrize("options", [["--gpus=8"], ["--gpus=0", "--slurm", "nope=1"]])
def test_a_refused_job_is_one_line_and_leaves_no_files(options, slurm, tmp_path):
    code, out, err = vitascope(slurm, tmp_path, *TRAIN, "--epochs=1", "--out=a/run", *options)
    assert (code, out, len(err.strip().splitlines())) == (2, "", 1)
    assert not list((tmp_path / "a" / "slurm").glob("*.pkl"))


def test_a_failure_names_the_first_real_error_of_the_log(slurm, tmp_path):
    words = [*TRAIN, "--epochs=1", "--gpus=0", "--set", "lr=1e9", "--out=run"]
    code, _, err = vitascope(slurm, tmp_path, *words)
    assert code == 2
    assert "the loss" in err


def test_a_cancelled_job_ends_the_wait_and_the_same_command_resumes(slurm, tmp_path):
    words = [*TRAIN, "--epochs=40", "--gpus=0", "--out=run", "--resume"]
    driver = vitascope(slurm, tmp_path, *words, wait=False)
    wait_until(lambda: (tmp_path / "run" / "metrics.jsonl").exists(), 120)
    subprocess.run(["scancel", "--user", "root"], env=slurm, check=True)
    driver.communicate(timeout=120)
    assert driver.returncode == 2
    before = len((tmp_path / "run" / "metrics.jsonl").read_text().splitlines())
    code, _, err = vitascope(slurm, tmp_path, *words)
    assert code == 0, err
    lines = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    assert before < len(lines) == 40


@pytest.mark.parametrize("cancel", [False, True])
def test_ctrl_c_says_what_becomes_of_the_jobs(cancel, slurm, tmp_path):
    words = [*TRAIN, "--epochs=400", "--gpus=0", "--out=run", *(["--cancel"] if cancel else [])]
    driver = vitascope(slurm, tmp_path, *words, wait=False)
    wait_until(lambda: (tmp_path / "run" / "metrics.jsonl").exists(), 120)  # its own job runs
    driver.send_signal(signal.SIGINT)
    _, err = driver.communicate(timeout=60)
    assert driver.returncode == 130
    assert ("cancelled" in err) if cancel else ("scancel " in err)
    if not cancel:
        assert "RUNNING" in queue(slurm)
        subprocess.run(["scancel", "--user", "root"], env=slurm, check=True)
    wait_until(lambda: not queue(slurm), 60)


def test_a_time_limit_with_requeue_is_resumed_by_slurm(slurm, tmp_path):
    words = [*TRAIN, "--epochs=60", "--gpus=0", "--out=run"]
    driver = vitascope(slurm, tmp_path, *words, wait=False)
    wait_until(lambda: (tmp_path / "run" / "metrics.jsonl").exists(), 120)
    job = subprocess.run(
        ["squeue", "--noheader", "--format", "%F"], capture_output=True, text=True, env=slurm
    ).stdout.split()[0]
    subprocess.run(["scontrol", "requeue", job], env=slurm, check=True)
    out, err = driver.communicate(timeout=300)
    assert driver.returncode == 0, err
    assert "top-1" in out


@pytest.fixture
def two_hosts():
    """Two network namespaces joined by a cable, each with its own loopback and one address."""
    names = ("vitascope1", "vitascope2")
    ip = ["ip"]
    for name in names:
        subprocess.run([*ip, "netns", "add", name], check=True)
    try:
        pair = ["link", "add", "v1", "netns", names[0], "type", "veth", "peer", "name", "v2"]
        subprocess.run([*ip, *pair, "netns", names[1]], check=True)
        for number, name in enumerate(names, 1):
            inside = [*ip, "-n", name]
            address = ["addr", "add", f"10.77.0.{number}/24", "dev", f"v{number}"]
            subprocess.run([*inside, *address], check=True)
            for device in ("lo", f"v{number}"):
                subprocess.run([*inside, "link", "set", device, "up"], check=True)
        yield names
    finally:
        for name in names:
            subprocess.run([*ip, "netns", "delete", name])


def rank_on(host, number, folder, *words):
    """Start the part of a run of two hosts that belongs to one of them."""
    return subprocess.Popen(
        [
            *("ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run"),
            *("--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=one"),
            *("--rdzv-endpoint=10.77.0.1:29400", f"--rdzv-conf=is_host={int(number == 1)}"),
            *(f"--local-addr=10.77.0.{number}", "--max-restarts=1", "-m", "vitascope", *words),
        ],
        cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        env={**os.environ, "GLOO_SOCKET_IFNAME": f"v{number}", "OMP_NUM_THREADS": "1"},
    )  # fmt: skip


def test_two_hosts_train_what_two_processes_of_one_host_train(two_hosts, tmp_path):
    words = ["train", "--model=vit_micro", "--data=digits", "--epochs=1", "--no-tracking"]
    ranks = [
        rank_on(host, number, tmp_path, *words, "--out=apart", "--quiet")
        for number, host in enumerate(two_hosts, 1)
    ]
    for rank in ranks:
        _, err = rank.communicate(timeout=300)
        assert rank.returncode == 0, err[-2000:]
    one_host = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    together = [*one_host, "--master-port=29533", "-m", "vitascope", *words, "--out=together"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run(together, cwd=tmp_path, check=True, env=environment, capture_output=True)
    apart, near = (
        load_file(tmp_path / name / "model.safetensors") for name in ("apart", "together")
    )
    assert load_run(tmp_path / "apart").world_size == 2
    assert all((apart[name] == near[name]).all() for name in near)


def test_a_killed_rank_is_restarted_and_the_run_resumes(two_hosts, tmp_path):
    words = ["train", "--model=vit_micro", "--data=digits", "--epochs=30", "--no-tracking"]
    more = ["--set", "checkpoint_epochs=1", "--out=run", "--resume", "--quiet"]
    ranks = [
        rank_on(host, number, tmp_path, *words, *more) for number, host in enumerate(two_hosts, 1)
    ]
    metrics = tmp_path / "run" / "metrics.jsonl"
    wait_until(lambda: metrics.exists() and len(metrics.read_text().splitlines()) > 2, 120)
    workers = subprocess.run(["pgrep", "-P", str(ranks[1].pid)], capture_output=True, text=True)
    os.kill(int(workers.stdout.split()[0]), signal.SIGKILL)
    for rank in ranks:
        _, err = rank.communicate(timeout=300)
        assert rank.returncode == 0, err[-2000:]
    assert len(metrics.read_text().splitlines()) == 30


def test_a_comparison_is_made_by_jobs(slurm, tmp_path):
    words = ["compare", "--data=digits", "--models", "vit_micro", "resnet_micro", "--epochs=1"]
    more = ["--fractions=1", "--seeds", "0", "1", "--engine=slurm", "--gpus=0", "--out=c", "--json"]
    code, out, err = vitascope(slurm, tmp_path, *words, *more)
    assert code == 0, err
    assert json.loads(out)["recommendation"]
    assert len(list((tmp_path / "c" / "slurm").glob("*_result.pkl"))) == 4
