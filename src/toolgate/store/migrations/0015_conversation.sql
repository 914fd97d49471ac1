-- What agents leave for people and for their own next turn: canvases, notifications, adjustments of behaviour.
CREATE TABLE canvases (
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,                    -- '': a session that users share
    session_id  TEXT NOT NULL,
    blocks      BIGINT NOT NULL,                  -- that were ever appended: the number of the last one
    size_bytes  BIGINT NOT NULL,
    updated_at  @time NOT NULL,
    PRIMARY KEY (tenant_id, user_id, session_id)
);

CREATE TABLE canvas_blocks (
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    session_id  TEXT NOT NULL,
    number      BIGINT NOT NULL,                  -- in its canvas, from 1
    pane        TEXT NOT NULL,
    content     TEXT NOT NULL,                    -- JSON, as text: PostgreSQL's own type takes less than JSON allows
    created_by  TEXT NOT NULL,
    created_at  @time NOT NULL,
    PRIMARY KEY (tenant_id, user_id, session_id, number)
);

CREATE TABLE notifications (
    id          TEXT PRIMARY KEY,                 -- later ones sort after earlier ones
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,                    -- who is told
    persona_id  TEXT,
    call_id     TEXT NOT NULL,
    message     TEXT NOT NULL,
    delivered   TEXT NOT NULL,                    -- names of channels, as JSON
    failed      TEXT NOT NULL,
    created_at  @time NOT NULL
);
CREATE INDEX notifications_user ON notifications (tenant_id, user_id, id);

CREATE TABLE behaviour_adjustments (
    id          TEXT PRIMARY KEY,
    tenant_id   TEXT NOT NULL,
    persona_id  TEXT NOT NULL,                    -- '': callers without one
    adjustment  TEXT NOT NULL,
    call_id     TEXT NOT NULL,
    created_by  TEXT NOT NULL,
    created_at  @time NOT NULL
);
CREATE UNIQUE INDEX behaviour_adjustments_text ON behaviour_adjustments (tenant_id, persona_id, adjustment);
