-- API keys: who a caller over HTTP is. Of the secret itself only the hash is kept.
CREATE TABLE api_keys (
    id            TEXT PRIMARY KEY,
    name          TEXT NOT NULL,
    secret_hash   TEXT NOT NULL,
    tenant_id     TEXT NOT NULL,
    persona_id    TEXT,
    user_id       TEXT NOT NULL,
    scopes        TEXT NOT NULL,                    -- JSON: a list of texts
    may_approve   BOOLEAN NOT NULL,                 -- whether whoever holds it may answer for a person
    created_by    TEXT NOT NULL,
    created_at    @time NOT NULL,
    expires_at    @time,                            -- NULL: never
    revoked_at    @time,
    revoked_by    TEXT,
    last_used_at  @time                             -- to the hour or so
);
CREATE INDEX api_keys_tenant ON api_keys (tenant_id, created_at);
