"""Packages of npm for a folder of the host: installed in a jail, looked at, and put in place by Toolgate.

    package.json and names     manifest
    node_modules               package_tree
    one installation           installer

npm never works in the folder itself. It is given what `package.json` and the lock file say, in an empty folder: no `.npmrc`,
no other file of the project is there to change what it does.
"""
