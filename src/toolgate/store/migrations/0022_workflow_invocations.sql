-- Workflows that were started and report their end by a callback.
CREATE TABLE workflow_invocations (
    id               TEXT PRIMARY KEY,            -- later ones sort after earlier ones
    tenant_id        TEXT NOT NULL,
    user_id          TEXT NOT NULL,
    persona_id       TEXT,
    workflow         TEXT NOT NULL,               -- the name of the tool
    idempotency_key  TEXT NOT NULL,
    call_id          TEXT NOT NULL,
    state            TEXT NOT NULL,               -- running, success, failure, timeout, not_started
    output           TEXT,                        -- JSON, as text
    error            TEXT,                        -- JSON: code, message
    execution_id     TEXT,                        -- in n8n
    created_at       @time NOT NULL,
    deadline         @time NOT NULL,
    ended_at         @time
);
CREATE UNIQUE INDEX workflow_invocations_key ON workflow_invocations (tenant_id, user_id, workflow, idempotency_key);
CREATE INDEX workflow_invocations_state ON workflow_invocations (state, deadline);
