"""Context broadcasting: every token gets the mean of all tokens.

`broadcast` (the layer), `class_token` (checks that there is one), `sublayers` (finds MLPs and
attention in any model), `whole_image` (windows and padding), `broadcasting` (inserts it into a
model). Used through `vitascope.broadcast`.
"""
