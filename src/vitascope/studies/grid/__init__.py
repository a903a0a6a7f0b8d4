"""Many trainings: which ones (cells) and how they run (processes on this machine, or SLURM jobs).

Used by `compare`, `buildup` and `papers`.
"""
