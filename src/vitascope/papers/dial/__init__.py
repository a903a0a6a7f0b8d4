"""Studies of our own: kinds of built-in locality (`accuracy`) and patch grids (`fine_grid`)."""
