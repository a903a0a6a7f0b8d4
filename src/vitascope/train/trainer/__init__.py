"""The training loop: the trainer, one update, optimizer, schedule, distillation, EMA, SAM."""
