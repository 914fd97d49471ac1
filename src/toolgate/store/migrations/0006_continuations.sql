-- Calls that wait until a person has answered about a call inside them, and what came of the other calls inside them.

CREATE TABLE continuations (
    id               TEXT PRIMARY KEY,              -- the outer call as it was first made
    tenant_id        TEXT NOT NULL,
    persona_id       TEXT,
    user_id          TEXT NOT NULL,
    scopes           TEXT NOT NULL,                 -- JSON
    session_id       TEXT,
    tool_name        TEXT NOT NULL,
    fingerprint      TEXT NOT NULL,
    policy_hash      TEXT NOT NULL,
    given_hash       TEXT NOT NULL,                 -- of the canonical arguments that the call came with
    args_hash        TEXT NOT NULL,                 -- of those that ran: a person may have edited them
    arguments        TEXT NOT NULL,                 -- those that ran, secrets masked
    complete         BOOLEAN NOT NULL,              -- whether `arguments` are the very arguments, nothing masked
    idempotency_key  TEXT,
    state            TEXT NOT NULL,                 -- waiting, running
    call_id          TEXT NOT NULL,                 -- the call that goes on with it, or did last
    process_id       TEXT,                          -- and its process, while it runs
    created_at       @time NOT NULL,
    expires_at       @time NOT NULL
);
CREATE INDEX continuations_same ON continuations (tenant_id, user_id, tool_name, given_hash);
CREATE INDEX continuations_key ON continuations (tenant_id, user_id, idempotency_key);
CREATE INDEX continuations_expired ON continuations (expires_at);

-- Every call inside; the row of the outer call itself has an empty step.
CREATE TABLE continuation_steps (
    continuation_id  TEXT NOT NULL,
    step             TEXT NOT NULL,                 -- hash of parent, tool, arguments, and which of several that are the same
    parent           TEXT NOT NULL,                 -- the step from inside which it was called; empty: the outer call
    tool_name        TEXT NOT NULL,
    call_id          TEXT NOT NULL,
    state            TEXT NOT NULL,                 -- running, done, asked (waits for a person), open (waits for one inside it)
    approval_id      TEXT,                          -- what it waits for, or what an open one was agreed to with
    agreed           BOOLEAN NOT NULL,
    outcome          TEXT,                          -- JSON, as it was given out: secrets masked
    cost             BIGINT NOT NULL,               -- nano-dollars, with the calls inside it
    PRIMARY KEY (continuation_id, step)
);

-- A question about a call inside another says which; its approval is good there and nowhere else.
ALTER TABLE approvals ADD COLUMN outer_call TEXT;
ALTER TABLE approvals ADD COLUMN outer_tool TEXT;
CREATE INDEX approvals_outer ON approvals (outer_call);
