"""The parts of a model: units, their kinds, their outputs and the residual stream between them."""
