"""Open any model: by name, from a run, a comparison, a file, a hub, or an `nn.Module`.

An opened model is on its device, with its preprocessing and its classes; a session adds images.
"""
