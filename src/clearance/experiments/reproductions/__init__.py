"""Papers, each in a folder: its claims as data, its recipes, and its studies."""
