"""Instruments on feature maps: Fourier spectrum, variance, CKA."""
