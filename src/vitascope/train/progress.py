"""Progress of a run: a bar on a terminal, plain lines elsewhere, or nothing."""

import sys
from types import TracebackType
from typing import TextIO

from tqdm import tqdm

__all__ = ["Progress"]


class Progress:
    """Images done of all, with images/s and time left; ``tell`` writes a line past the bar."""

    def __init__(
        self, total: int, *, start: int = 0, quiet: bool = False, stream: TextIO | None = None
    ) -> None:
        self.stream = stream or sys.stderr
        self.quiet = quiet
        self.bar: tqdm | None = None
        if not quiet and self.stream.isatty():
            self.bar = tqdm(
                total=total,
                initial=start,
                unit="img",
                unit_scale=True,
                dynamic_ncols=True,
                mininterval=0.2,
                file=self.stream,
            )

    def advance(self, images: int) -> None:
        """Some more images were trained on."""
        if self.bar is not None:
            self.bar.update(images)

    def tell(self, line: str) -> None:
        """One line for the reader."""
        if self.bar is not None:
            self.bar.write(line, file=self.stream)
        elif not self.quiet:
            print(line, file=self.stream, flush=True)

    def __enter__(self) -> "Progress":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.bar is not None:
            self.bar.close()
