"""Steps of a study whose number becomes known on the way."""

from collections.abc import Callable

__all__ = ["OnStep", "Steps"]

OnStep = Callable[[str, int, int], None]  # what is done, steps done, steps in all


class Steps:
    """Counts steps for a progress bar.

    >>> told = []
    >>> steps = Steps(lambda what, done, total: told.append((what, done, total)), total=1)
    >>> steps("images"), steps("fgsm", 2), steps("fgsm", 1)
    (None, None, None)
    >>> told
    [('images', 1, 1), ('fgsm', 2, 3), ('fgsm', 3, 3)]
    """

    def __init__(self, on_step: OnStep, total: int):
        self.on_step, self.done, self.total = on_step, 0, total

    def __call__(self, what: str, ahead: int | None = None) -> None:
        """One more step; ``ahead`` are left, this one included."""
        if ahead is not None:
            self.total = self.done + ahead
        self.done += 1
        self.on_step(what, self.done, max(self.done, self.total))
