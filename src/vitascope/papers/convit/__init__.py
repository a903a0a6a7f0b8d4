"""Tables and figures of ConViT (d'Ascoli et al. 2021).

Definitions only; listed in the catalogue of `papers`.
"""
