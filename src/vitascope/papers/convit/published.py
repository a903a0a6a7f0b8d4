"""The published networks beside ConViT in its Fig. 2 right: (million parameters, ImageNet top-1).

EfficientNet B3 to B7 and ViT have the same numbers in Table 1a of Liu et al. 2021 (Swin). Left out
is VT (Wu et al. 2020), which the figure also shows: its numbers could not be checked.
"""

Points = tuple[tuple[float, float], ...]

CNNS: dict[str, Points] = {
    # 18, 50, 101, 152: torchvision's first weights, in timm's results-imagenet.csv (tv_in1k)
    "ResNet, published": ((11.7, 69.8), (25.6, 76.1), (44.5, 77.4), (60.2, 78.3)),
    # B0 to B7: Tan and Le 2019, Table 2
    "EfficientNet, published": (
        (5.3, 77.1),
        (7.8, 79.1),
        (9.2, 80.1),
        (12, 81.6),
        (19, 82.9),
        (30, 83.6),
        (43, 84.0),
        (66, 84.3),
    ),
}
TRANSFORMERS: dict[str, Points] = {
    # B/16 and L/16 at 384 pixels, ImageNet alone: Touvron et al. 2021, Table 5
    "ViT, published": ((86, 77.9), (307, 76.5)),
    # 14, 19, 24: Yuan et al. 2021, the released models' table (github.com/yitu-opensource/T2T-ViT)
    "T2T-ViT, published": ((21.5, 81.5), (39.2, 81.9), (64.1, 82.3)),
}
