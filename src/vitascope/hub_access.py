"""Weights from the Hugging Face hub, with a short timeout where the hub cannot be reached.

huggingface_hub tries again for a minute before it says that there is no network. Here the hub is
asked once, for three seconds; if there is no answer it is taken for offline, and only what is in
the cache is used. Nothing here imports torch, so a command can ask before it loads torch and timm.
"""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from importlib.util import find_spec
from os import environ
from pathlib import Path

from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

from vitascope.errors import UserError

SECONDS = 3.0  # to wait for the hub
_NOT_HAD = (LocalEntryNotFoundError, OfflineModeIsEnabled, urllib.error.URLError, socket.timeout)


@lru_cache(maxsize=1)
def reachable(endpoint: str) -> bool:
    """Return whether something answers there, also with an error; asked once in each process."""
    answered = threading.Event()

    def ask() -> None:
        try:
            request = urllib.request.Request(endpoint, method="HEAD")
            with urllib.request.urlopen(request, timeout=SECONDS):
                answered.set()
        except urllib.error.HTTPError:
            answered.set()
        except (OSError, ValueError):
            return

    asking = threading.Thread(target=ask, daemon=True)  # a name server may keep it for longer
    asking.start()
    asking.join(SECONDS + 0.5)
    return answered.is_set()


def comes_from_hub(name: str) -> bool:
    """Return whether a model's pretrained weights can only come from the hub or its cache.

    >>> [comes_from_hub(name) for name in ("resnet18", "timm:resnet18", "hf-hub:a/b@main")]
    [True, True, True]
    >>> [comes_from_hub(name) for name in ("timm:resnet18@a.pt", "local-dir:a", "mine:model")]
    [False, False, False]
    """
    if name.startswith("hf-hub:"):
        return True
    return not {"@", ":"} & set(name.removeprefix("timm:")) and not Path(name).exists()


def cached_repositories() -> set[str]:
    """``OWNER/NAME`` of every model in the hub's cache."""
    folders = Path(constants.HF_HUB_CACHE).expanduser().glob("models--*--*")
    return {"/".join(folder.name.split("--", 2)[1:]) for folder in folders}


def may_be_cached(name: str) -> bool:
    """Return whether the weights of a model that comes from the hub may be in a cache.

    timm's are nearly all in ``timm/NAME.TAG``. A few have another owner or an address outside the
    hub, which timm's source names; importing it would take four seconds.
    """
    cached = cached_repositories()
    if name.startswith("hf-hub:"):
        return name.removeprefix("hf-hub:").split("@")[0] in cached
    stem = _architecture(name).replace("_quickgelu", "")  # has the weights of the model without it
    elsewhere = {repository for repository in cached if not repository.startswith("timm/")}
    return any(each.startswith(f"timm/{stem}") for each in cached) or _named_by_timm(
        elsewhere | _torch_checkpoints()
    )


def _architecture(name: str) -> str:
    """A model's name without prefix, suffix and tag.

    >>> _architecture("timm:resnet18.a1_in1k"), _architecture("vs_convit_tiny+cb")
    ('resnet18', 'convit_tiny')
    """
    return name.removeprefix("timm:").removeprefix("vs_").split("+")[0].split(".")[0]


def _torch_checkpoints() -> set[str]:
    """Names of the files that torch has downloaded."""
    home = environ.get("TORCH_HOME") or Path(environ.get("XDG_CACHE_HOME", "~/.cache"), "torch")
    return {file.name for file in Path(home, "hub/checkpoints").expanduser().glob("*")}


def _named_by_timm(texts: set[str]) -> bool:
    """Return whether one of these stands in the source of timm's models."""
    spec = find_spec("timm") if texts else None
    folders = spec.submodule_search_locations or () if spec else ()
    sources = (file for folder in folders for file in Path(folder, "models").glob("*.py"))
    return any(text in source.read_text(encoding="utf-8") for source in sources for text in texts)


def check_weights_can_be_had(names: Sequence[str]) -> None:
    """Refuse models whose pretrained weights are out of reach, before anything else is loaded.

    Only the certain case is refused: all are timm's or on the hub, none is in a cache, and the hub
    does not answer. A name that timm does not have is left to those who know the others.

    Raises:
        UserError: Naming the cache and the other sources of weights.
    """
    if not all(map(comes_from_hub, names)):
        return
    by_name = [_architecture(name) for name in names if not name.startswith("hf-hub:")]
    if not all(_named_by_timm({f"def {name}(", f"def {name}_patch"}) for name in by_name):
        return
    if not constants.HF_HUB_OFFLINE and reachable(constants.ENDPOINT):
        return
    if not any(map(may_be_cached, names)):
        raise UserError(_missing(names[0] if len(names) == 1 else f"all {len(names)} models"))


def _missing(name: str) -> str:
    return (
        f"the weights of {name} are not in the cache ({constants.HF_HUB_CACHE}) and "
        f"{constants.ENDPOINT} cannot be reached; give local-dir:FOLDER or NAME@FILE, or fill "
        "the cache where there is a network (HF_HOME says where it is)"
    )


@contextmanager
def hub_download(what: str) -> Iterator[None]:
    """Context manager for downloads: a failure becomes a one-line error within five seconds.

    Args:
        what: What is wanted, for the message.

    Raises:
        UserError: If it is neither in the cache nor can it be downloaded.
    """
    before = constants.HF_HUB_OFFLINE
    offline = before or not reachable(constants.ENDPOINT)
    constants.HF_HUB_OFFLINE = offline
    try:
        yield
    except OSError as error:  # all of the hub's are; transformers says them in its own words
        first = error.__cause__ if isinstance(error.__cause__, _NOT_HAD) else error
        if not isinstance(first, (*_NOT_HAD, HfHubHTTPError)):
            raise
        if isinstance(first, HfHubHTTPError) and not isinstance(first, LocalEntryNotFoundError):
            why = " ".join(str(error).split())[:200]
            raise UserError(f"cannot have {what} from {constants.ENDPOINT}: {why}") from None
        raise UserError(_missing(what)) from None
    finally:
        constants.HF_HUB_OFFLINE = before
