"""OpenAPI documents as a source of tools: each operation of a service is a tool once a person has accepted it."""
