"""Readers: from a name or path (folder, CIFAR, idx, hub, shards, ImageNet) to a data set."""
