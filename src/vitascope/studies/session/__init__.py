"""A model with its images: opened, in its size and normalisation, on its device; evaluated."""
