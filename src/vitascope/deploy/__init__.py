"""A trained run in use: load it with its transform and class names, predict image files.

For people who have a model and want answers from it; nothing here trains or measures.
"""

from vitascope.deploy.loading import Loaded, load
from vitascope.deploy.prediction import Prediction, predict

__all__ = ["Loaded", "Prediction", "load", "predict"]
