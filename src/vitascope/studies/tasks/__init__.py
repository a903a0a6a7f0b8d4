"""Tasks beside classification: `segmentation` (ADE20K), `vqa` (VQAv2), and `training`, which makes
one of them from the words of a command.

Joins `data`, `models`, `measure` and `train`; used by `commands`.
"""
