"""The published networks beside ConViT in its Fig. 2 right: (million parameters, ImageNet top-1).

The figure takes them from Touvron et al. 2020 (Table 5: ResNet, EfficientNet, ViT), He et al. 2016,
Tan and Le 2019, and Yuan et al. 2021 (T2T-ViT; here the numbers of its last version). It also shows
VT (Wu et al. 2020), which is left out: its numbers could not be checked.
"""

__all__ = ["CNNS", "TRANSFORMERS"]

Points = tuple[tuple[float, float], ...]

CNNS: dict[str, Points] = {
    "ResNet, published": ((12, 69.8), (25, 76.2), (45, 77.4), (60, 78.3)),  # 18, 50, 101, 152
    "EfficientNet, published": (  # B0 to B7
        (5, 77.1),
        (8, 79.1),
        (9, 80.1),
        (12, 81.6),
        (19, 82.9),
        (30, 83.6),
        (43, 84.0),
        (66, 84.3),
    ),
}
TRANSFORMERS: dict[str, Points] = {
    "ViT, published": ((86, 77.9), (307, 76.5)),  # B/16 and L/16 at 384 pixels
    "T2T-ViT, published": ((21.5, 81.5), (39.1, 81.9), (64.0, 82.3)),  # 14, 19, 24
}
