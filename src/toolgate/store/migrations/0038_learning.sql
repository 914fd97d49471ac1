-- Outcomes of tools, the recent ones weighing most: made from the audit log with call_statistics; tool_outcomes.py says how.
CREATE TABLE tool_outcomes (
    tenant_id  TEXT NOT NULL,
    tool_name  TEXT NOT NULL,
    good       DOUBLE PRECISION NOT NULL,
    bad        DOUBLE PRECISION NOT NULL,
    transient  DOUBLE PRECISION NOT NULL,         -- failures that may pass by themselves
    recovered  DOUBLE PRECISION NOT NULL,         -- those among them after which the next call succeeded
    is_broken  INTEGER NOT NULL,                  -- 1: the last call ended with such a failure
    at         BIGINT NOT NULL,                   -- seconds since 1970, of the last outcome
    PRIMARY KEY (tenant_id, tool_name)
) @clustered;

-- What users said about calls.
CREATE TABLE learning_feedback (
    id            TEXT PRIMARY KEY,
    tenant_id     TEXT NOT NULL,
    user_id       TEXT NOT NULL,
    persona_id    TEXT,
    tool_name     TEXT NOT NULL,
    call_id       TEXT,                           -- NULL: about the tool, not about one call
    success       INTEGER NOT NULL,
    score         DOUBLE PRECISION,
    comment       TEXT,
    duration_ms   DOUBLE PRECISION,
    args_hash     TEXT,
    response_size BIGINT,
    is_weighed    INTEGER NOT NULL,               -- 1: it was added to tool_outcomes
    created_at    @time NOT NULL,
    UNIQUE (tenant_id, user_id, call_id)
);
CREATE INDEX learning_feedback_user ON learning_feedback (tenant_id, user_id, created_at);
CREATE INDEX learning_feedback_age ON learning_feedback (tenant_id, created_at);

-- Operators' answers to proposals. An accepted one holds for the tool from then on.
CREATE TABLE tool_limits (
    tool_name  TEXT NOT NULL,
    kind       TEXT NOT NULL,                     -- timeout, retry, breaker
    value      DOUBLE PRECISION NOT NULL,         -- seconds; attempts; 1
    state      TEXT NOT NULL,                     -- accepted, rejected
    decided_by TEXT NOT NULL,
    decided_at @time NOT NULL,
    PRIMARY KEY (tool_name, kind)
);
