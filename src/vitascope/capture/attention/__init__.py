"""Attention maps of a running model, also from fused kernels.

`recorder` notices each attention computation, `events` describes one, `maps` collects them by
module name; `function_modes` switches torch function modes off. Used through `vitascope.capture`.
"""
