"""The HTTP API under /v1: a module for each resource, over the facets of an App.

`endpoint` says how a route is declared, `handler` how a request becomes a call of it, `openapi` how they are described.
"""
