"""See and edit what happens inside any ``nn.Module``, and leave nothing behind.

* :func:`attention`: the attention maps, by module name, fused kernels or not;
* :func:`features` and :func:`edit`: read or replace outputs, names by wildcard;
* :func:`units`: the parts a vision model is made of, found by running it once;
* :func:`streams` and :func:`without`: what the network carries on after each unit, and the network
  without some of them;
* :func:`token_coordinates`: where on the image each query and key of each attention layer lies
  (:func:`trace_tokens`: and which layers' tokens cannot be followed);
* :func:`evaluating`: eval mode without gradients, everything restored;
* :func:`logits_of`: what any classifier puts out, as logits.
"""

from vitascope.capture.attention.events import has_fused_layers
from vitascope.capture.attention.maps import attention, gated_layers, watch_maps
from vitascope.capture.coordinates.tokens import TokenCoordinates, token_coordinates, trace_tokens
from vitascope.capture.logits import heads_of, logits_of
from vitascope.capture.structure.features import edit, evaluating, features, matching
from vitascope.capture.structure.residual_stream import streams, without
from vitascope.capture.structure.units import Unit, units

__all__ = [
    "TokenCoordinates",
    "Unit",
    "attention",
    "edit",
    "evaluating",
    "features",
    "gated_layers",
    "has_fused_layers",
    "heads_of",
    "logits_of",
    "matching",
    "streams",
    "token_coordinates",
    "trace_tokens",
    "units",
    "watch_maps",
    "without",
]
