"""Instruments that remove a part and measure the accuracy lost: `lesion` and `masking`.

Called through `vitascope.measure`; `figures` shows their records, without torch.
"""
