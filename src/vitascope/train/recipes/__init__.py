"""A recipe (every setting of a training), and the named ones."""
