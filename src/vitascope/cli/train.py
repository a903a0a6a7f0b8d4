"""``vitascope train``: one model, one data set, one recipe, one folder."""

import json
from collections.abc import Sequence

from vitascope.cli.options import parse
from vitascope.requests.train import Train

__all__ = ["run"]


def run(words: Sequence[str]) -> None:
    """Parse the words after ``vitascope train``, train and print."""
    request = parse(Train, "vitascope train", words)
    from vitascope.studies.grid.train_command import train_once
    from vitascope.threads import use_threads

    use_threads(request.threads)
    given = dict(vars(request))
    for name in ("threads", "json", "no_tracking"):
        del given[name]
    given |= {"changes": given.pop("set"), "num_workers": given.pop("workers")}
    given |= {"trackers": () if request.no_tracking else request.trackers}
    done = train_once(**given | {"quiet": request.quiet or request.json})
    if done is None:  # another process of the same run prints
        return
    if request.json:
        print(json.dumps({"folder": str(done.folder), **done.final}))
    else:
        top1 = 100 * done.final["top1"]
        print(f"{done.folder}: top-1 {top1:.2f} % after {done.epochs} epochs, {done.seconds:.0f} s")
