-- Notes that agents keep. A space is what one persona of one tenant remembers; a call without a persona has a space of its own.
CREATE TABLE memory_spaces (
    id         @serial,
    space      TEXT NOT NULL UNIQUE,              -- tenant and persona as a JSON array: no two of them are written alike
    tenant_id  TEXT NOT NULL,
    persona_id TEXT,
    notes      BIGINT NOT NULL DEFAULT 0,
    bytes      BIGINT NOT NULL DEFAULT 0,         -- of all notes: text, metadata and vector
    added      BIGINT NOT NULL DEFAULT 0,         -- the last note that was added: those after it are new to a process
    removed    BIGINT NOT NULL DEFAULT 0          -- how many were ever removed: whether those that a process knows are all there
);
CREATE INDEX memory_spaces_tenant ON memory_spaces (tenant_id);

CREATE TABLE memories (
    seq        @serial,
    id         TEXT NOT NULL,
    space_id   BIGINT NOT NULL REFERENCES memory_spaces (id) ON DELETE CASCADE,
    user_id    TEXT NOT NULL,
    text       TEXT NOT NULL,
    metadata   TEXT NOT NULL,                     -- a JSON object
    bytes      BIGINT NOT NULL,
    model      TEXT,                              -- that made the vector: those of two models can't be compared
    vector     @bytes,                            -- float32, little-endian; null: not computed yet
    created_at @time NOT NULL,
    UNIQUE (space_id, id)
);
CREATE INDEX memories_space ON memories (space_id, seq);
