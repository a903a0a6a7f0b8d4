"""Instruments on changed images (corruptions, noise, occlusion, attacks), and calibration.

Called through `vitascope.measure`; `changed_images` is what they share, `corruptions` makes the
images of CIFAR-C and ImageNet-C. `figures` shows their records, without torch.
"""
