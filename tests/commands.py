"""A short run, the words of a short comparison, and commands to be stopped and killed."""

import os
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, suppress

from vitascope.commands import main

COMPARE = ["compare", "--data", "digits", "--epochs", "1", "--fractions", "0.1", "0.2"]
COMPARE += ["--seeds", "0", "1", "--models", "vit_micro", "convit_micro", "resnet_micro"]
COMPARE += ["--set", "batch_size=16", "scale_epochs=false"]


def short_run(out):
    """A finished training on the digits, of a few steps, in the folder ``out``."""
    words = ["train", "--model", "vit_micro", "--data", "digits", "--out", str(out), "--quiet"]
    more = ["--epochs", "1", "--fraction", "0.2", "--set", "batch_size=32", "scale_epochs=false"]
    assert main([*words, *more, "--model-args", "depth=1", "--no-tracking"]) == 0
    return out


@contextmanager
def started(words, until):
    """``vitascope`` in a session of its own, once ``until()`` holds; nothing of it survives."""
    command = [sys.executable, "-m", "vitascope", *words]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 250
    try:
        while not until():
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=60)
