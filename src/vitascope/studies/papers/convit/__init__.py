"""Tables and figures of ConViT (d'Ascoli et al. 2021)."""
