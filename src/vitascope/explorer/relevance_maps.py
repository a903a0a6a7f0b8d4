"""Relevance maps for the explorer: what each prediction depends on, one byte per place."""

from typing import Any

import numpy as np
from torch import Tensor

from vitascope.errors import UserError
from vitascope.measure.relevance.relevance import Explainer
from vitascope.measure.streaming.model_structure import ModelStructure


def explainer_of(structure: ModelStructure) -> Explainer | None:
    """What explains the model; None where it has no features on a grid."""
    try:
        return Explainer(structure)
    except UserError:
        return None


def relevance_maps(
    explain: Explainer | None, images: Tensor
) -> tuple[dict[str, np.ndarray], list[dict[str, Any]]]:
    """Arrays ``relevance/METHOD`` (n, h, w), 255 the largest of each, and their descriptions."""
    if explain is None:
        return {}, []
    try:
        maps, _ = explain(images)
    except UserError:  # no classifier, or a prediction that depends on no place
        return {}, []
    arrays, described = {}, []
    for method, values in maps.items():
        top = values.flatten(1).amax(1).clamp(min=1e-30)[:, None, None]
        arrays[f"relevance/{method}"] = (255 * values / top).round().byte().cpu().numpy()
        described.append({"method": method, "grid": tuple(values.shape[1:])})
    return arrays, described
