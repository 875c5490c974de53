"""The same mathematics as the plain modules, for speed. Each is tested against the plain path, which readers read."""
