"""A model with its images: opened, on its device, in its size and normalisation; evaluated.

Every other subpackage of `studies` gets its models and images here.
"""
