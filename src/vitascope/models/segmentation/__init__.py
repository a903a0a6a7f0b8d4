"""Segmentation models on any backbone: feature pyramid (`pyramid`) and head (`segmenter`).

Uses `models.create_model`; trained by `train.trainer.segmentation`, measured by `measure.miou`.
"""
