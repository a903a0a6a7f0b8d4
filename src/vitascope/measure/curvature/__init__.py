"""Instruments on the loss as a function of the weights: Hessian, landscape, trajectory."""
