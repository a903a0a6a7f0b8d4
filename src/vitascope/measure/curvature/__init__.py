"""Curvature of the loss: Hessian eigenvalues and their density, landscapes, trajectories.

`hessian`, `density`, `landscape` and `trajectory` are public through `vitascope.measure`;
`objective`, `products`, `eigenvalues`, `spectrum`, `directions` and `resume` are their parts.
"""
