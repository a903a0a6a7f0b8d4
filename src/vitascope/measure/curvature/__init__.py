"""Curvature of the loss: Hessian eigenvalues and their density, landscapes, trajectories.

`hessian`, `blocks`, `density`, `landscape` and `trajectory` are public through `vitascope.measure`;
`objective`, `products`, `eigenvalues`, `spectrum` and `resume` are their parts. `figures` shows
their records, without torch.
"""
