-- Documents that agents may ask questions of, each of a tenant and a persona ('': of callers without one), cut into passages.
CREATE TABLE document_libraries (
    tenant_id  TEXT PRIMARY KEY,
    revision   BIGINT NOT NULL                    -- raised by every change, which thereby waits for the one before it
);

CREATE TABLE documents (
    id          TEXT PRIMARY KEY,
    tenant_id   TEXT NOT NULL,
    persona_id  TEXT NOT NULL,
    name        TEXT NOT NULL,
    kind        TEXT NOT NULL,
    sha256      TEXT NOT NULL,                    -- of the file
    origin      TEXT NOT NULL,                    -- digest of where the file was: the next one from there replaces it
    size_bytes  BIGINT NOT NULL,
    passages    INTEGER NOT NULL,
    truncated   BOOLEAN NOT NULL,
    model       TEXT NOT NULL,                    -- that computed the embeddings
    created_by  TEXT NOT NULL,
    created_at  @time NOT NULL
);
CREATE UNIQUE INDEX documents_content ON documents (tenant_id, persona_id, sha256);

CREATE TABLE document_passages (
    document_id  TEXT NOT NULL,
    number       INTEGER NOT NULL,                -- in the document, from 0
    text         TEXT NOT NULL,
    page         INTEGER,
    section      TEXT,
    sheet        TEXT,
    first_row    INTEGER,
    last_row     INTEGER,
    embedding    @bytes NOT NULL,                 -- 32-bit floats, little-endian, of length one together
    PRIMARY KEY (document_id, number)
);
