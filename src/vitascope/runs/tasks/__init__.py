"""Tasks besides classification: `segmentation` (ADE20K) and `vqa` (VQAv2).

`training` trains one of them from the options of a command.
"""
