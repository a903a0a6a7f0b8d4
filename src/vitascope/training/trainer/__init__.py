"""The training loop: `loop` (train), `trainer` (epochs), `update` (one step), optimizer,
schedule, distillation, EMA, SAM, signals. Used through `vitascope.training.train`.
"""
