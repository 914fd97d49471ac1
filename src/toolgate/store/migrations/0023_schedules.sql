-- Schedules: times at which a job is queued, again and again.
CREATE TABLE schedules (
    id            TEXT PRIMARY KEY,
    tenant_id     TEXT NOT NULL,
    persona_id    TEXT,
    user_id       TEXT NOT NULL,
    scopes        TEXT NOT NULL,                 -- as JSON
    name          TEXT NOT NULL,
    cron          TEXT NOT NULL,
    timezone      TEXT NOT NULL,                 -- that the cron line is read in
    type          TEXT NOT NULL,                 -- of the jobs
    payload       TEXT NOT NULL,                 -- of the jobs: encrypted JSON
    shown         TEXT NOT NULL,                 -- the payload as JSON, with secrets masked
    needs_key     BOOLEAN NOT NULL,              -- it fires only while an API key lets its user act so
    state         TEXT NOT NULL,                 -- active, paused, ended
    reason        TEXT,                          -- why it is paused, or has ended
    next_at       @time,                         -- when it fires next; NULL: it has ended
    last_due      @time,                         -- when it was to fire the last time
    last_at       @time,                         -- when it did
    last_job      TEXT,
    is_open       BOOLEAN NOT NULL DEFAULT FALSE,-- the end of the last job is not counted yet
    runs          BIGINT NOT NULL DEFAULT 0,
    max_runs      BIGINT,
    until         @time,
    missed        BIGINT NOT NULL DEFAULT 0,     -- times at which it did not fire
    failures      BIGINT NOT NULL DEFAULT 0,     -- of jobs, in a row
    created_by    TEXT NOT NULL,
    created_at    @time NOT NULL
);
CREATE UNIQUE INDEX schedules_name ON schedules (tenant_id, user_id, name);
CREATE INDEX schedules_due ON schedules (state, next_at, id);
CREATE INDEX schedules_open ON schedules (is_open, id);
