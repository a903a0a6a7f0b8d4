"""Vision transformers besides ConViT: convolutional ViT, LocalViT, PVT, timm's at CIFAR size.

`patches` and `grid_vit` are the base that ConViT shares; entered by name in `models.registry`.
`dial` has the changes that put locality into a plain ViT: `mimetic` and `impulse`
(initialisations), `shifted_patches`, `convolutional_stem`, and layers of `vitascope.layers`.
"""
