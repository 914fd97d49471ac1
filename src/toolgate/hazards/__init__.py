"""Files that hold secrets and commands that do harm, recognised by what they are and not by how they are spelled.

`paths` and `commands` are what others use; `filenames`, `lookalikes`, `opening` and `programs` are what those know.
"""
