"""Instruments on feature maps: `fourier` spectrum, spatial `variance`, token `norms`, `cka`.

Called through `vitascope.measure`; they run on `measure.streaming`. `figures` shows their records,
without torch.
"""
