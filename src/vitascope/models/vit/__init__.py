"""Vision transformers beside ConViT: convolutional ViT, LocalViT, PVT, small CIFAR networks."""
