"""Connections to other machines: which may be made, and to which address.

addresses, urls              how hosts and URLs are written, and which addresses are public
resolver                     names to addresses
http_client                  the client of the built-in tools; http_headers, http_connection, http_response
allowed_hosts, egress_proxy  the network of a jail
"""
