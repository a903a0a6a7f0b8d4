"""ResNets and AlterNet, from the smallest part up: `blocks`, `stages`, `resnet`,
`alternet`. Built on `layers`; entered by name in `models.registry`.
"""
