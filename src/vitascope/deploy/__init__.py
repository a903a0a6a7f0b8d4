"""A trained run in use: predict image files, export it to a file, put it on the hub.

For people who have a model and want answers from it; nothing here trains or measures.
"""

from vitascope.deploy.prediction import Prediction, predict

__all__ = ["Prediction", "predict"]
