"""ConViT, its distilled form, and ConViT from a trained ResNet."""
