-- An idempotency key is bound to the persona and the scopes of the call that took it: '' is of a time before that, and is
-- nobody's role, so that the outcome goes to no one.
ALTER TABLE idempotency_keys ADD COLUMN role_hash TEXT NOT NULL DEFAULT '';

-- The name under which a tool of a server was first accepted: it is that tool's from then on, whatever settings say later.
ALTER TABLE server_tools ADD COLUMN claimed_name TEXT;
