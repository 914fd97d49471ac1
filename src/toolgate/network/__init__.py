"""Connections to other machines: which may be made, and to which address.

addresses                   how hosts are written and which addresses are public
resolver                    names to addresses
allowed_hosts, egress_proxy  the network of a jail
"""
