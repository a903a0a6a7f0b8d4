"""All instruments that reports show, in the order of a page: one entry for each.

An instrument of the family `robustness` is also one of `vitascope evaluate --on`.
"""

from vitascope.measure.ablation import figures as ablation
from vitascope.measure.attention import figures as attention
from vitascope.measure.attribution import figures as attribution
from vitascope.measure.curvature import figures as curvature
from vitascope.measure.features import figures as features
from vitascope.measure.instrument import Instrument, mean_over
from vitascope.measure.readout import figures as readout
from vitascope.measure.robustness import figures as robustness

__all__ = ["INSTRUMENTS", "family"]

_ALL = (
    Instrument(
        "nonlocality",
        "attention",
        attention.nonlocality,
        mean_over("layers", "per_layer", "patches, mean over layers"),
        streaming=True,
    ),
    Instrument(
        "gates",
        "attention",
        attention.gates,
        mean_over("layers", "per_layer", "share of position, mean over layers"),
    ),
    Instrument("windows", "attention", attention.windows, attention.windows_rows),
    Instrument(
        "entropy",
        "attention",
        attention.entropy,
        mean_over("layers", "relative", "of a uniform head's, mean over layers"),
        streaming=True,
        passes=1,
    ),
    Instrument("maps", "attention", attention.maps, attention.maps_rows, streaming=True),
    Instrument("norms", "features", features.norms, features.norms_rows, streaming=True),
    Instrument("pca", "features", features.pca, features.pca_rows),
    Instrument("relevance", "attribution", attribution.relevance, attribution.relevance_rows),
    Instrument(
        "fourier", "features", features.fourier, features.fourier_rows, streaming=True, passes=1
    ),
    Instrument(
        "variance",
        "features",
        features.variance,
        mean_over("units", "variance", "over space, mean over units"),
        streaming=True,
        passes=1,
    ),
    Instrument("cka", "features", features.cka, features.cka_rows, streaming=True, passes=1),
    Instrument("lens", "readout", readout.lens, readout.lens_rows),
    Instrument("patching", "readout", readout.patching, readout.patching_rows),
    Instrument("masking", "ablation", ablation.masking, ablation.masking_rows),
    Instrument(
        "lesion",
        "ablation",
        ablation.lesion,
        ablation.lesion_rows,
        passes=17,  # whole, and without each unit of a small network
    ),
    Instrument(
        "occlusion",
        "robustness",
        robustness.occlusion,
        robustness.occlusion_rows,
        robustness.occlusion_sentence,
        options=("sizes", "fill"),
    ),
    Instrument(
        "fgsm",
        "robustness",
        robustness.attack,
        robustness.attack_rows,
        robustness.attack_sentence,
        options=("epsilons", "against"),
    ),
    Instrument(
        "pgd",
        "robustness",
        robustness.attack,
        robustness.attack_rows,
        robustness.attack_sentence,
        options=("epsilons", "against", "steps"),
    ),
    Instrument(
        "frequency",
        "robustness",
        robustness.frequency,
        robustness.frequency_rows,
        robustness.frequency_sentence,
        options=("frequencies", "window", "rms", "clamp"),
        passes=12,  # clean, and noise at eleven frequencies
    ),
    Instrument(
        "corruption",
        "robustness",
        robustness.corruption,
        robustness.corruption_rows,
        robustness.corruption_sentence,
        options=("severities", "corrupted"),
        passes=75,  # 15 corruptions at 5 severities
    ),
    Instrument(
        "calibration",
        "robustness",
        robustness.calibration,
        robustness.calibration_rows,
        robustness.calibration_sentence,
        options=("num_bins",),
    ),
    Instrument("hessian", "curvature", curvature.hessian, curvature.hessian_rows),
    Instrument("blocks", "curvature", curvature.blocks, curvature.blocks_rows),
    Instrument("density", "curvature", curvature.density, curvature.density_rows),
    Instrument("landscape", "curvature", curvature.landscape, curvature.landscape_rows),
    Instrument("trajectory", "curvature", curvature.trajectory, curvature.trajectory_rows),
)
INSTRUMENTS: dict[str, Instrument] = {each.name: each for each in _ALL}


def family(name: str) -> dict[str, Instrument]:
    """Return the instruments of one family."""
    return {each.name: each for each in INSTRUMENTS.values() if each.family == name}
