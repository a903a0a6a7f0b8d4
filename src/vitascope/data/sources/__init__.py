"""Readers of data sets: folders, CIFAR, idx, Hugging Face, WebDataset shards, ImageNet, ...

`load` maps a string to a reader; each reader gives images, `assemble` adds split and statistics.
Called through `vitascope.data.load`.
"""
