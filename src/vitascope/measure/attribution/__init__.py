"""Relevance: which image regions a prediction depends on, and how faithful the maps are.

`attention_flow` follows attention back to the image (rollout, gradient-weighted attention),
`grad_cam` weights feature maps, `faithfulness` hides regions in the stated order, `relevance` is
the instrument. `figures` shows its records, without torch.
"""
