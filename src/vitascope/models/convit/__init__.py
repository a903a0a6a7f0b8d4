"""ConViT (`convit`), with a distillation token (`distilled`), and from a trained ResNet
(`from_resnet`). Built on `models.vit` and `layers`; entered by name in `models.registry`.
"""
