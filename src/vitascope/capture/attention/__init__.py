"""Attention maps of any model while it runs, fused kernels or not.

Used by `measure` through `vitascope.capture`; imports only `capture`."""
