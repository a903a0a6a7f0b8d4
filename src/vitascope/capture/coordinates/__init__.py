"""Where on the image tokens and features lie, found by tracing one image through a model."""
