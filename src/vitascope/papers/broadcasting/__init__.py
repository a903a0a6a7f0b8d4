"""Tables and figures of context broadcasting (Hyeon-Woo et al. 2022).

Definitions only; listed in the catalogue of `papers`.
"""
