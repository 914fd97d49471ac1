-- The user's own words of a session, so that all processes know them: what a person typed, and nobody else.
CREATE TABLE flow_sessions (
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,                    -- '': calls of the user that name none
    words       @bytes NOT NULL,                  -- keyed hashes of tokens in their order, 8 bytes each; zeros between messages
    updated_at  @time NOT NULL,                   -- when it was last used, give or take some minutes
    PRIMARY KEY (tenant_id, user_id, session_id)
);
CREATE INDEX flow_sessions_updated ON flow_sessions (updated_at);

-- The last few messages of a session, for approvers to see.
CREATE TABLE flow_messages (
    id          TEXT PRIMARY KEY,                 -- later ones sort after earlier ones
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    sealed      TEXT NOT NULL,                    -- its beginning, masked and encrypted
    said_at     @time NOT NULL,
    FOREIGN KEY (tenant_id, user_id, session_id) REFERENCES flow_sessions (tenant_id, user_id, session_id) ON DELETE CASCADE
);
CREATE INDEX flow_messages_session ON flow_messages (tenant_id, user_id, session_id, id);

-- Where a call came from whose question waits, and what its user had typed by then: encrypted, until it is answered.
ALTER TABLE approvals ADD COLUMN connection_id TEXT;
ALTER TABLE approvals ADD COLUMN user_words TEXT;
CREATE INDEX approvals_user_words ON approvals (expires_at) WHERE user_words IS NOT NULL;

-- Whether whoever holds a key may pass on what its user typed.
ALTER TABLE api_keys ADD COLUMN may_speak BOOLEAN NOT NULL DEFAULT FALSE;
