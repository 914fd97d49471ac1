-- Files that users uploaded, for document_ingest and for programs to fetch again.
CREATE TABLE attachments (
    id          TEXT PRIMARY KEY,                 -- later ones sort after earlier ones
    tenant_id   TEXT NOT NULL,
    user_id     TEXT NOT NULL,
    name        TEXT NOT NULL,                    -- as the user gave it: data, never a path
    media_type  TEXT NOT NULL,                    -- likewise
    size_bytes  BIGINT NOT NULL,
    sha256      TEXT NOT NULL,
    created_at  @time NOT NULL
);
CREATE INDEX attachments_of_user ON attachments (tenant_id, user_id, id);
CREATE INDEX attachments_of_tenant ON attachments (tenant_id, id);

-- Apart, so that a list reads no contents.
CREATE TABLE attachment_contents (
    id       TEXT PRIMARY KEY REFERENCES attachments (id) ON DELETE CASCADE,
    content  @bytes NOT NULL
);
