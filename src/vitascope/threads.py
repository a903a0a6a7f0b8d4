"""Set torch's threads (``--threads``). Records name them: with others, sums round otherwise."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

from vitascope.errors import UserError
from vitascope.settings import COMMAND, with_option

MOST = 1024


def use_threads(count: int | None) -> None:
    """Give torch this many threads; the command that records keep says how many there are.

    Args:
        count: None leaves them as they are: OMP_NUM_THREADS, or as many as torch takes.
    """
    import torch

    if count is not None:
        if not 1 <= count <= MOST:
            raise UserError(f"--threads {count} is out of range; give 1 to {MOST}")
        torch.set_num_threads(count)
    if os.environ.get(COMMAND):
        line = with_option(os.environ[COMMAND], "--threads", torch.get_num_threads())
        os.environ[COMMAND] = line


@contextmanager
def running_on(count: int) -> Iterator[None]:
    """Run the block with this many threads of torch; then as before."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
