"""Weights from the Hugging Face hub, with a short timeout where the hub cannot be reached.

huggingface_hub tries again for a minute before it says that there is no network. Here the hub is
asked once, for three seconds; if there is no answer it is taken for offline, and only what is in
the cache is used.
"""

import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from huggingface_hub import constants
from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

from vitascope.errors import UserError

SECONDS = 3.0  # to wait for the hub
_NOT_HAD = (LocalEntryNotFoundError, OfflineModeIsEnabled, urllib.error.URLError, socket.timeout)


@lru_cache(maxsize=1)
def reachable(endpoint: str) -> bool:
    """Whether something answers there, also with an error; asked once in each process."""
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
        raise UserError(
            f"the weights of {what} are not in the cache ({constants.HF_HUB_CACHE}) and "
            f"{constants.ENDPOINT} cannot be reached; give local-dir:FOLDER or NAME@FILE, or fill "
            "the cache where there is a network (HF_HOME says where it is)"
        ) from None
    finally:
        constants.HF_HUB_OFFLINE = before
