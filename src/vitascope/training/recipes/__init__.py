"""Recipes: every setting of a training run (`config`), and the named ones (`named`).

Imports no torch. Used through `vitascope.training`.
"""
