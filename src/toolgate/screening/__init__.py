"""Files that hold secrets and commands that do harm, recognised by what they are and not by how they are spelled.

`paths`, `commands`, `environment`, `queries` and `shapes` are what others use; the other modules are what those know, each
of one thing.
"""
