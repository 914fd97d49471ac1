-- Policy lists, approvals and grants, budgets, idempotency keys, backups; and who is alive to settle what it took.

-- Members of the policy's lists: global_tool_deny, code_execution_restricted_tenants.
CREATE TABLE policy_lists (
    list        TEXT NOT NULL,
    member      TEXT NOT NULL,
    reason      TEXT,
    updated_at  @time NOT NULL DEFAULT @now,
    PRIMARY KEY (list, member)
);

-- Each open App has a row and renews it; what was taken by one that no longer does is settled by the others.
CREATE TABLE processes (
    id       TEXT PRIMARY KEY,
    seen_at  @time NOT NULL
);

CREATE TABLE approvals (
    id                TEXT PRIMARY KEY,
    call_id           TEXT NOT NULL,
    tenant_id         TEXT NOT NULL,
    persona_id        TEXT,
    user_id           TEXT NOT NULL,
    scopes            TEXT NOT NULL,                -- JSON: a call that is resumed has the scopes that it had
    session_id        TEXT,
    door              TEXT NOT NULL,
    tool_name         TEXT NOT NULL,
    tool_version      TEXT NOT NULL,
    fingerprint       TEXT NOT NULL,
    policy_hash       TEXT NOT NULL,
    tier              TEXT NOT NULL,
    destructive       BOOLEAN NOT NULL,
    reason            TEXT NOT NULL,
    description       TEXT NOT NULL,
    args_hash         TEXT NOT NULL,                -- of the canonical arguments that the call came with
    arguments         TEXT NOT NULL,                -- as a person may see them: secrets masked
    complete          BOOLEAN NOT NULL,             -- whether `arguments` are the very arguments, nothing masked
    idempotency_key   TEXT,
    estimate          BIGINT NOT NULL,              -- nano-dollars
    confidence        TEXT NOT NULL,
    expected_ms       BIGINT,
    state             TEXT NOT NULL,                -- waiting, approved, rejected, used
    answered_by       TEXT,
    answered_through  TEXT,                         -- terminal, callback, cli, http, console, mcp, grant
    answer_reason     TEXT,
    edited            TEXT,                         -- the arguments that were approved instead, canonical
    edited_hash       TEXT,
    used_by           TEXT,                         -- the call that used it
    created_at        @time NOT NULL,
    expires_at        @time NOT NULL,
    answered_at       @time,
    used_at           @time
);
CREATE INDEX approvals_open ON approvals (tenant_id, state, created_at);
CREATE INDEX approvals_call ON approvals (call_id);
CREATE INDEX approvals_asked ON approvals (tenant_id, user_id, state, expires_at);

CREATE TABLE grants (
    id          TEXT PRIMARY KEY,
    tenant_id   TEXT NOT NULL,
    persona_id  TEXT,                               -- NULL: whatever the persona
    user_id     TEXT,                               -- NULL: whoever the user
    session_id  TEXT,                               -- NULL: in every session
    tool_name   TEXT NOT NULL,
    fingerprint TEXT NOT NULL,                      -- of the tool as it was when a person agreed
    cap         BIGINT,                             -- nano-dollars that may be spent under it in all; NULL: no cap of its own
    spent       BIGINT NOT NULL DEFAULT 0,
    uses        BIGINT NOT NULL DEFAULT 0,
    granted_by  TEXT NOT NULL,
    reason      TEXT,
    created_at  @time NOT NULL,
    expires_at  @time NOT NULL,
    revoked_at  @time,
    revoked_by  TEXT
);
CREATE INDEX grants_tool ON grants (tenant_id, tool_name);

CREATE TABLE budgets (
    id          TEXT PRIMARY KEY,
    tenant_id   TEXT,                               -- NULL: every tenant together; likewise persona, user, tool
    persona_id  TEXT,
    user_id     TEXT,
    tool_name   TEXT,
    period      TEXT NOT NULL,                      -- day, month
    cap         BIGINT NOT NULL,                    -- nano-dollars
    timezone    TEXT NOT NULL,
    until       @time,                              -- NULL: for good
    updated_by  TEXT NOT NULL,
    updated_at  @time NOT NULL DEFAULT @now
);

-- What is spent and what is reserved, for each budget (`account` names it, and for whom it counts) and each period.
CREATE TABLE spending (
    account   TEXT NOT NULL,
    starts    TEXT NOT NULL,                        -- the first day of the period, in the budget's time zone
    reserved  BIGINT NOT NULL DEFAULT 0,
    spent     BIGINT NOT NULL DEFAULT 0,
    alerted   INTEGER NOT NULL DEFAULT 0,           -- the last threshold that was announced, in percent
    PRIMARY KEY (account, starts)
);

CREATE TABLE reservations (
    call_id     TEXT PRIMARY KEY,
    process_id  TEXT NOT NULL,
    amount      BIGINT NOT NULL,
    accounts    TEXT NOT NULL,                      -- JSON: [[account, starts], …]
    state       TEXT NOT NULL,                      -- held, settled, reaped
    created_at  @time NOT NULL
);
CREATE INDEX reservations_held ON reservations (state, process_id);

CREATE TABLE idempotency_keys (
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    key         TEXT NOT NULL,
    call_id     TEXT NOT NULL,
    process_id  TEXT NOT NULL,
    tool_name   TEXT NOT NULL,
    args_hash   TEXT NOT NULL,
    state       TEXT NOT NULL,                      -- running, done, unknown
    outcome     TEXT,                               -- JSON, once it is done
    settled_by  TEXT,                               -- who settled an unknown one by hand
    created_at  @time NOT NULL,
    updated_at  @time NOT NULL,
    PRIMARY KEY (tenant_id, user_id, key)
);
CREATE INDEX idempotency_state ON idempotency_keys (state, process_id);
CREATE INDEX idempotency_age ON idempotency_keys (updated_at);

CREATE TABLE backups (
    id           TEXT PRIMARY KEY,
    call_id      TEXT NOT NULL,
    seq          INTEGER NOT NULL,
    tenant_id    TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    path         TEXT NOT NULL,
    kind         TEXT NOT NULL,                     -- file, absent, directory, link
    kept         TEXT,                              -- the name of the copy, or where a link pointed
    mode         INTEGER,
    before_hash  TEXT,
    after_hash   TEXT,
    state        TEXT NOT NULL,                     -- open, done, undone
    created_at   @time NOT NULL,
    undone_at    @time
);
CREATE INDEX backups_call ON backups (call_id, seq);

-- For billing and for `toolgate costs`: one tool_invocations for each call that ran, and its tool_cost if it cost anything.
CREATE VIEW tool_usage AS
SELECT call_id, tenant AS tenant_id, @text(body,persona) AS persona_id, @text(body,user) AS user_id, tool AS tool_name,
       'tool_invocations' AS feature_code, 1 AS quantity, status, at
FROM audit_log
WHERE kind = 'end' AND CAST(@text(body,attempts) AS INTEGER) > 0
UNION ALL
SELECT call_id, tenant, @text(body,persona), @text(body,user), tool,
       'tool_cost', CAST(@text(body,cost) AS BIGINT), status, at
FROM audit_log
WHERE kind = 'end' AND CAST(@text(body,cost) AS BIGINT) > 0;
