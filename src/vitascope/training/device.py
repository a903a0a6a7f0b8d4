"""Choose a torch device by name, and check that bfloat16 works on it."""

import faulthandler
import os
from functools import cache

import torch

from vitascope.errors import UserError


def device_of(name: str | None) -> torch.device:
    """The device called ``name``; the best there is for None.

    >>> device_of("cpu")
    device(type='cpu')

    Raises:
        UserError: If there is no such device here, or it cannot compute ("meta").
    """
    gpus, mps = torch.cuda.device_count(), torch.backends.mps.is_available()
    if name is None:
        return torch.device("cuda" if gpus else "mps" if mps else "cpu")
    there = ["cpu", *(["cuda"] if gpus else []), *(f"cuda:{i}" for i in range(gpus))]
    there += ["mps"] if mps else []
    if name not in there:
        raise UserError(f"no device {name!r} here; there is {', '.join(there)}")
    return torch.device(name)


def check_bfloat16() -> None:
    """A product in bfloat16 on the CPU, tried in a process of its own.

    Some virtual machines announce AMX, Intel's instructions for it, and do not run them: the first
    product ends the process.

    Raises:
        UserError: If it does.
    """
    if not _survives():
        raise UserError(
            "this machine announces instructions for bfloat16 that it does not run: set "
            "ONEDNN_MAX_CPU_ISA=AVX512_CORE_FP16 in the environment, or use mixed_precision=no"
        )


@cache
def _survives() -> bool:
    if not hasattr(os, "fork"):
        return True
    child = os.fork()
    if child == 0:
        faulthandler.disable()  # a crash is an expected result: print no traceback
        torch.set_num_threads(1)
        ones = torch.ones(64, 64, dtype=torch.bfloat16)
        torch.nn.functional.linear(ones, ones)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
