"""Vision transformers besides ConViT: convolutional ViT, LocalViT, PVT, timm's at CIFAR size.

`patches` and `grid_vit` are the base that ConViT shares; entered by name in `models.registry`.
"""
