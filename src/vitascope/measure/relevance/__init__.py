"""What a model's answer rests on: relevance of image regions, and how faithful it is.

`attention_flow` follows attention back to the image (rollout, gradient-weighted attention),
`grad_cam` weights feature maps, `faithfulness` hides regions in the stated order, `relevance` is
the instrument. Used by `studies`.
"""
