"""The store: one port (`database.Store`), SQLite and PostgreSQL behind it, and one file of SQL for each group of tables.

What a group does is written once, as generators that yield statements and are given rows (`database.Transaction`). Each
backend drives them in its own way, so that the logic is the same on all of them and can be tested alike.
"""
