-- Links that sign a person in, once each. Of what a link holds only the hash is kept.
CREATE TABLE sign_in_links (
    token_hash    TEXT PRIMARY KEY,
    tenant_id     TEXT NOT NULL,                    -- of whoever opens it, and so on
    persona_id    TEXT,
    user_id       TEXT NOT NULL,
    scopes        TEXT NOT NULL,                    -- JSON: a list of texts
    roles         TEXT NOT NULL,                    -- JSON: a list of texts
    created_by    TEXT NOT NULL,
    created_at    @time NOT NULL,
    expires_at    @time NOT NULL,
    used_at       @time                             -- NULL: not yet
);
CREATE INDEX sign_in_links_expiry ON sign_in_links (expires_at);

-- Browsers that are signed in. Of what their cookie holds only the hash is kept.
CREATE TABLE web_sessions (
    id            TEXT PRIMARY KEY,
    token_hash    TEXT NOT NULL UNIQUE,
    tenant_id     TEXT NOT NULL,
    persona_id    TEXT,
    user_id       TEXT NOT NULL,
    scopes        TEXT NOT NULL,
    roles         TEXT NOT NULL,
    created_by    TEXT NOT NULL,                    -- who made the link
    created_at    @time NOT NULL,
    expires_at    @time NOT NULL,                   -- however often it is used
    last_used_at  @time NOT NULL,                   -- to a few minutes
    revoked_at    @time,
    revoked_by    TEXT
);
CREATE INDEX web_sessions_expiry ON web_sessions (expires_at);

-- Where a process serves HTTP, so that others can make links to it. NULL: it does not.
ALTER TABLE processes ADD COLUMN url TEXT;
