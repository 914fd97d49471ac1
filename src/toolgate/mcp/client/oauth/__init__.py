"""OAuth logins at remote servers: `login` is for a person, `provider` for calls, and `requests` guards what both send."""
