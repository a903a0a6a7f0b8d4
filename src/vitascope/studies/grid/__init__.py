"""Plans of many trainings and who runs them: processes on this machine, or SLURM jobs."""
