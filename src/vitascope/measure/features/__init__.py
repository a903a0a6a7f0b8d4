"""Instruments on feature maps: `fourier` spectrum, spatial `variance`, `cka`.

Called through `vitascope.measure`; they run on `measure.streaming`.
"""
