-- Jobs: work that is done in the background, by whichever worker takes it.
CREATE TABLE jobs (
    id            TEXT PRIMARY KEY,              -- later ones sort after earlier ones
    tenant_id     TEXT NOT NULL,
    persona_id    TEXT,
    user_id       TEXT NOT NULL,
    scopes        TEXT NOT NULL,                 -- as JSON
    type          TEXT NOT NULL,                 -- of the handler
    payload       TEXT NOT NULL,                 -- encrypted JSON
    payload_hash  TEXT NOT NULL,
    shown         TEXT NOT NULL,                 -- the payload as JSON, with secrets masked
    state         TEXT NOT NULL,                 -- queued, running, waiting, done, failed, cancelled, parked
    rank          BIGINT NOT NULL,               -- the lower, the sooner: the priority, negated
    run_at        @time NOT NULL,
    is_due        BOOLEAN NOT NULL DEFAULT TRUE, -- run_at has come
    idempotency_key TEXT,
    max_attempts  BIGINT NOT NULL,
    attempts      BIGINT NOT NULL DEFAULT 0,     -- that ended, and failed
    crashes       BIGINT NOT NULL DEFAULT 0,     -- of workers that had it
    claim         BIGINT NOT NULL DEFAULT 0,     -- how often it was taken: whoever took it last may end it
    process_id    TEXT,                          -- that has it
    is_cancelled  BOOLEAN NOT NULL DEFAULT FALSE,-- somebody wants it to end
    approval      TEXT,                          -- that it waits for
    call_id       TEXT,                          -- whose reservation it has
    schedule_id   TEXT,
    progress      TEXT,                          -- as JSON
    result        TEXT,                          -- as JSON
    error         TEXT,                          -- as JSON
    created_at    @time NOT NULL,
    started_at    @time,
    ended_at      @time
);
CREATE UNIQUE INDEX jobs_key ON jobs (tenant_id, user_id, type, idempotency_key);
-- One index for each question, over the rows that it is about: a planner without statistics has no wrong one to choose.
CREATE INDEX jobs_due ON jobs (tenant_id, rank, run_at, id) WHERE state = 'queued' AND is_due = TRUE;
CREATE INDEX jobs_later ON jobs (run_at) WHERE state = 'queued' AND is_due = FALSE;
CREATE INDEX jobs_running ON jobs (state, tenant_id) WHERE state = 'running';
CREATE INDEX jobs_waiting ON jobs (approval) WHERE state = 'waiting';
CREATE INDEX jobs_ended ON jobs (ended_at) WHERE ended_at IS NOT NULL;
CREATE INDEX jobs_in_state ON jobs (tenant_id, state, id);
CREATE INDEX jobs_of_tenant ON jobs (tenant_id, id);
