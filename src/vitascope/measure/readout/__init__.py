"""What layers know, read off them or moved into another image.

`lens` reads each layer by the model's own classifier and by a linear probe, `patching` replaces
what a unit puts out for one image by what it puts out for another. `figures` shows records, without
torch.
"""
