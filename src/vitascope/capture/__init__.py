"""Read and edit the internals of any ``nn.Module``; hooks and modes are removed afterwards.

* :func:`attention`: attention maps by module name, also from fused kernels;
* :func:`features` and :func:`edit`: read or replace module outputs, names by wildcard;
* :func:`units`: the attention layers, MLPs, convolutions, ... of a model, found by running it once;
* :func:`streams` and :func:`without`: the residual stream after each unit, and the network without
  some units;
* :func:`token_coordinates`: image coordinates of the queries and keys of each attention layer
  (:func:`trace_tokens`: also the layers that cannot be traced, with the reason);
* :func:`gradients`: attention maps and module outputs with the gradient of a score at each;
* :func:`image_outputs`: the outputs that lie on a grid of the image;
* :func:`prefix_tokens`: names of the class, distillation and register tokens;
* :func:`evaluating`: eval mode without gradients, restored at the end;
* :func:`logits_of`: the logits in any classifier's output;
* :func:`try_image`: whether a model takes some images.

Subpackages: `attention` (maps), `coordinates` (of tokens), `structure` (units, residual stream).
Any package may import this one; it imports only `errors`.
"""

from vitascope.capture.attention.events import has_fused_layers
from vitascope.capture.attention.maps import attention, gated_layers, watch_maps
from vitascope.capture.coordinates.prefix_tokens import prefix_tokens, token_names
from vitascope.capture.coordinates.tokens import TokenCoordinates, token_coordinates, trace_tokens
from vitascope.capture.gradients import Gradients, gradients
from vitascope.capture.input_check import try_image
from vitascope.capture.logits import heads_of, logits_of
from vitascope.capture.structure.features import edit, evaluating, features, matching
from vitascope.capture.structure.image_outputs import ImageOutput, image_outputs
from vitascope.capture.structure.residual_stream import streams, without
from vitascope.capture.structure.units import Unit, units

__all__ = [
    "Gradients",
    "ImageOutput",
    "TokenCoordinates",
    "Unit",
    "attention",
    "edit",
    "evaluating",
    "features",
    "gated_layers",
    "gradients",
    "has_fused_layers",
    "heads_of",
    "image_outputs",
    "logits_of",
    "matching",
    "prefix_tokens",
    "streams",
    "token_coordinates",
    "token_names",
    "trace_tokens",
    "try_image",
    "units",
    "watch_maps",
    "without",
]
