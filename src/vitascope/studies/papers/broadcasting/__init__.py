"""Tables and figures of context broadcasting (Hyeon-Woo et al. 2022)."""
