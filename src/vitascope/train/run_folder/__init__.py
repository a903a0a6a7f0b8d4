"""A run on disk: config, metrics log, resume file, lock, atomic files."""
