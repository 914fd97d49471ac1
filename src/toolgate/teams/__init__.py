"""Organisation tools: bundles of tools that an organisation signs and its installations use, once reviewed.

`bundle` is the signed document and what is refused of it; `pack` makes one; `tool_files` reads its tools; `review` shows
what waits; `records` is the tables; `live_tools` takes what was accepted into the catalog; `sources` gets the newest bundle.
"""
