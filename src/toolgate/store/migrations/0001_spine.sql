-- The catalog of tools, the flags that say who has which, the audit log, and outputs that were too long to give out.
-- Words beginning with @ differ between databases: see migrate.py.

CREATE TABLE tool_catalog (
    name         TEXT PRIMARY KEY,
    enabled      BOOLEAN NOT NULL DEFAULT TRUE,
    description  TEXT,
    params       @json NOT NULL DEFAULT '{}',
    source       TEXT NOT NULL DEFAULT 'python',
    version      TEXT NOT NULL DEFAULT '1.0.0',
    tier         TEXT NOT NULL DEFAULT 'write',
    category     TEXT NOT NULL DEFAULT 'custom',
    definition   @json NOT NULL DEFAULT '{}',
    fingerprint  TEXT NOT NULL DEFAULT '',
    token_cost   INTEGER,
    enabled_by   TEXT,                            -- who set `enabled`; NULL: the seed did, and settings may say otherwise
    created_at   @time NOT NULL DEFAULT @now,
    updated_at   @time NOT NULL DEFAULT @now
);

CREATE TABLE tenant_tool_flags (
    tenant_id   TEXT NOT NULL,
    tool_name   TEXT NOT NULL REFERENCES tool_catalog (name) ON DELETE CASCADE,
    enabled     BOOLEAN NOT NULL,
    updated_at  @time NOT NULL DEFAULT @now,
    PRIMARY KEY (tenant_id, tool_name)
);

CREATE TABLE persona_tool_restrictions (
    persona_id  TEXT NOT NULL,
    tool_name   TEXT NOT NULL REFERENCES tool_catalog (name) ON DELETE CASCADE,
    allowed     BOOLEAN NOT NULL DEFAULT TRUE,
    reason      TEXT,
    updated_at  @time NOT NULL DEFAULT @now,
    PRIMARY KEY (persona_id, tool_name)
);

CREATE TABLE persona_permissions (
    persona_id     TEXT PRIMARY KEY,
    can_add_tools  BOOLEAN NOT NULL DEFAULT FALSE,
    updated_at     @time NOT NULL DEFAULT @now
);

CREATE TABLE dynamic_tools (
    id                     @serial,
    name                   TEXT NOT NULL,
    registered_by_tenant   TEXT NOT NULL,
    registered_by_persona  TEXT,
    source_type            TEXT NOT NULL,         -- mcp, http, workflow, sandbox
    source_url             TEXT,
    input_schema           @json NOT NULL DEFAULT '{}',
    definition             @json NOT NULL DEFAULT '{}',
    enabled                BOOLEAN NOT NULL DEFAULT TRUE,
    created_at             @time NOT NULL DEFAULT @now,
    UNIQUE (registered_by_tenant, name)
);

-- Counts up with every change to the tables above, so that other processes see that they must read them again.
CREATE TABLE catalog_epoch (
    id     INTEGER PRIMARY KEY,
    value  BIGINT NOT NULL
);
INSERT INTO catalog_epoch (id, value) VALUES (1, 1);

CREATE TABLE audit_log (
    seq      @bigint PRIMARY KEY,
    at       BIGINT NOT NULL,                     -- microseconds since 1970
    kind     TEXT NOT NULL,                       -- start, end, or the name of an administrative action
    call_id  TEXT NOT NULL,
    tenant   TEXT NOT NULL,
    tool     TEXT NOT NULL,
    status   TEXT NOT NULL,
    body     TEXT NOT NULL,                       -- JSON, the very bytes that were hashed
    hash     TEXT NOT NULL                        -- of the row before and this one: see chain.py
);
CREATE INDEX audit_log_call ON audit_log (call_id);
CREATE INDEX audit_log_tool ON audit_log (tool, seq);
CREATE INDEX audit_log_tenant ON audit_log (tenant, seq);

-- For reports and dashboards: the calls that ended, one row each, with the columns that such tables usually have.
CREATE VIEW tool_execution_log AS
SELECT seq AS id,
       tool AS tool_name,
       tenant AS tenant_id,
       @text(body,persona) AS persona_id,
       @text(body,session) AS session_id,
       @text(body,args_hash) AS args_hash,
       status = 'success' AS success,
       CAST(@text(body,duration_ms) AS REAL) AS duration_ms,
       @text(body,message) AS error_message,
       @instant(at) AS created_at
FROM audit_log
WHERE kind = 'end';

CREATE TABLE artifacts (
    id          TEXT PRIMARY KEY,
    call_id     TEXT NOT NULL,
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    content     @bytes NOT NULL,
    created_at  @time NOT NULL DEFAULT @now,
    expires_at  @time NOT NULL
);
CREATE INDEX artifacts_expiry ON artifacts (expires_at);
