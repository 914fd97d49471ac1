-- Sessions of MCP clients that begin with a handshake (protocol revisions before 2026-07-28): any process on this database
-- can serve a request of any of them.
CREATE TABLE mcp_sessions (
    id           TEXT PRIMARY KEY,              -- the hash of the session's id, which is a credential
    credential   TEXT NOT NULL,                 -- the id of the credential that began it: nobody else finds it
    actor        TEXT NOT NULL,                 -- JSON
    client       TEXT NOT NULL,                 -- JSON: the parameters of its initialize request
    log_level    TEXT,                          -- of logging/setLevel
    uris         TEXT NOT NULL,                 -- JSON: the resources that it has subscribed to
    version      INTEGER NOT NULL,              -- grows with each change of the above
    replicas     INTEGER NOT NULL,              -- how many processes have taken it up so far
    seen_at      @time NOT NULL                 -- when it was last used, give or take a minute
);
CREATE INDEX mcp_sessions_owner ON mcp_sessions (credential);
CREATE INDEX mcp_sessions_seen ON mcp_sessions (seen_at);

-- Messages of a session that reached another process than the one that they are for. Each lives for a minute.
CREATE TABLE mcp_session_messages (
    seq         @serial,
    session_id  TEXT NOT NULL,
    sender      INTEGER NOT NULL,               -- the replica that received it
    receiver    INTEGER NOT NULL,               -- the replica that it is for; 0: every other
    body        TEXT NOT NULL,                  -- encrypted
    sent_at     @time NOT NULL
);
CREATE INDEX mcp_session_messages_session ON mcp_session_messages (session_id);
CREATE INDEX mcp_session_messages_sent ON mcp_session_messages (sent_at);
