"""Instruments that change the images (corruptions, noise, occlusion, attacks), and calibration."""
