"""`vitascope inspect`: which instruments run on a model, with which images and options."""
