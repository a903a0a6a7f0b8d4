"""The units of a model, their kinds and outputs, and the residual stream between them.

`features` reads and edits outputs, `kinds` classifies modules, `residual_stream` follows the sums,
`units` joins them. Used through `vitascope.capture`.
"""
