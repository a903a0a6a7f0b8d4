"""Instruments on the loss as a function of the weights.

`hessian`, `density`, `landscape` and `trajectory` are public through `vitascope.measure`;
`objective`, `products`, `eigenvalues`, `spectrum`, `directions` and `resume` are their parts.
"""
