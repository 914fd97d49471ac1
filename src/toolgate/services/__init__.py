"""Clients of external services that built-in tools use: one module each, over the one HTTP client of `network`.

A client knows what a service documents: addresses, headers, bodies, answers, errors. Where a service is reached comes from
the settings and from nowhere else; the credential comes with each call, because each user may have another one.
"""
