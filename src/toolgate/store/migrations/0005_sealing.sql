-- Keys with which Toolgate seals what clients carry for it from one request to the next (MCP's requestState).

CREATE TABLE sealing_keys (
    id          @serial,
    purpose     TEXT NOT NULL UNIQUE,
    secret      TEXT NOT NULL,
    created_at  @time NOT NULL DEFAULT @now
);
