-- Runs of agents, and the messages of each.
CREATE TABLE agent_runs (
    id            TEXT PRIMARY KEY,               -- later ones sort after earlier ones
    tenant_id     TEXT NOT NULL,
    persona_id    TEXT,
    user_id       TEXT NOT NULL,
    scopes        TEXT NOT NULL,                  -- JSON
    session_id    TEXT,
    door          TEXT NOT NULL,
    workspace     TEXT,                           -- the folder that was chosen for its calls
    here          TEXT,                           -- the current folder, where its calls work there
    style         TEXT NOT NULL,                  -- native, json
    status        TEXT NOT NULL,                  -- running, waiting, done, failed, cancelled
    reason        TEXT,
    answer        TEXT,                           -- encrypted
    limits        TEXT NOT NULL,                  -- JSON
    turns         INTEGER NOT NULL,
    tokens        BIGINT NOT NULL,
    cost          BIGINT NOT NULL,                -- nano-dollars
    seconds       DOUBLE PRECISION NOT NULL,
    leg           TEXT NOT NULL,                  -- JSON: the sums above when the user last spoke
    pending       TEXT NOT NULL,                  -- JSON: what it waits for
    grants        TEXT NOT NULL,                  -- JSON: the ids of those that let it ask the model
    is_attended   BOOLEAN NOT NULL,               -- somebody drives it by hand: no worker takes it over
    is_queued     BOOLEAN NOT NULL,               -- a job is to drive it
    needs_key     BOOLEAN NOT NULL,               -- it ends with the API key that it came with
    parent_run    TEXT,                           -- of a subordinate: the run whose call it is in
    origin        TEXT,                           -- and that call
    args_hash     TEXT,                           -- of what it was told to do
    process_id    TEXT,
    claims        INTEGER NOT NULL,               -- each process that drives it has one; a write names it
    crashes       INTEGER NOT NULL,               -- processes that died while they drove it
    created_at    @time NOT NULL,
    updated_at    @time NOT NULL,
    ended_at      @time
);
CREATE INDEX agent_runs_of_user ON agent_runs (tenant_id, user_id, id);
CREATE INDEX agent_runs_live ON agent_runs (status, process_id);
CREATE INDEX agent_runs_of_parent ON agent_runs (parent_run);
CREATE INDEX agent_runs_ended ON agent_runs (ended_at);
CREATE UNIQUE INDEX agent_runs_of_call ON agent_runs (tenant_id, user_id, origin);

CREATE TABLE agent_messages (
    run_id      TEXT NOT NULL,
    seq         INTEGER NOT NULL,                 -- the results of an answer's calls have the numbers after it
    turn        INTEGER NOT NULL,
    kind        TEXT NOT NULL,                    -- system, user, assistant, tool, notice
    content     TEXT NOT NULL,                    -- encrypted JSON
    created_at  @time NOT NULL,
    PRIMARY KEY (run_id, seq)
) @clustered;

-- Of a question that a subordinate agent asks: the personas for whom it acts, as JSON.
ALTER TABLE approvals ADD COLUMN on_behalf_of TEXT;

-- The approval that a call used.
CREATE INDEX approvals_used ON approvals (used_by);
