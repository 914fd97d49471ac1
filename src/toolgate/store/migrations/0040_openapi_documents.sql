-- OpenAPI documents whose operations are tools. Their definitions are pinned in server_tools, under the server `openapi:NAME`.
CREATE TABLE openapi_documents (
    name        TEXT PRIMARY KEY,
    origin      TEXT NOT NULL,                      -- the file or URL that it was read from
    title       TEXT NOT NULL,
    settings    TEXT NOT NULL,                      -- JSON; secrets are named in it, not held
    added_by    TEXT NOT NULL,
    created_at  @time NOT NULL,
    read_at     @time NOT NULL
);
