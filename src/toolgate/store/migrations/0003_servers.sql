-- MCP servers that were added while running, and the tools that servers have: as they were accepted, and as they are.

-- Those of the settings file are not here.
CREATE TABLE servers (
    name        TEXT PRIMARY KEY,
    settings    TEXT NOT NULL,                      -- JSON; secrets are named in it, not held
    added_by    TEXT NOT NULL,
    created_at  @time NOT NULL,
    updated_at  @time NOT NULL
);

-- What a server said of itself when it was last asked what it has.
CREATE TABLE server_listings (
    server         TEXT PRIMARY KEY,
    identity       TEXT NOT NULL,                   -- which program or address it was: what another one has was never accepted
    about          TEXT NOT NULL,                   -- JSON: protocol, capabilities, name and version, instructions
    jail           TEXT,                            -- what held it; NULL: nothing
    listed_at      @time NOT NULL,
    restart_asked  BIGINT NOT NULL DEFAULT 0        -- counts up; whoever has it running starts it anew
);

CREATE TABLE server_tools (
    server         TEXT NOT NULL,
    method         TEXT NOT NULL,                   -- tools/call, resources/read, prompts/get, completion/complete
    tool           TEXT NOT NULL,                   -- the server's own name of it
    state          TEXT NOT NULL,                   -- accepted, quarantined, gone
    accepted       TEXT,                            -- JSON: the definition that a person accepted; NULL: none yet
    accepted_hash  TEXT,
    found          TEXT,                            -- JSON: the definition as the server has it now; NULL: it has none
    found_hash     TEXT,
    first_seen     @time NOT NULL,
    changed_at     @time NOT NULL,
    accepted_by    TEXT,
    accepted_at    @time,
    claimed_at     @time,                           -- when it was first accepted: its name is its own from then on
    PRIMARY KEY (server, method, tool)
);
CREATE INDEX server_tools_state ON server_tools (state, server);

-- Counts every change of the three: who has seen this value need not read them again.
CREATE TABLE servers_epoch (
    id     INTEGER PRIMARY KEY,
    value  BIGINT NOT NULL
);
INSERT INTO servers_epoch (id, value) VALUES (1, 0);
