"""Image coordinates of tokens and features, found by tracing one image through a model.

`tracer` follows every tensor, `operators` says how each operator moves coordinates, `layout` reads
a grid off them, `tokens` gives the queries and keys of each attention layer. Used through
`vitascope.capture` and by `structure`.
"""
