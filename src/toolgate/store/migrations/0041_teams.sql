-- Organisation tools: the newest bundle of an organisation, what it has of each tool, and what a person accepted of that.

CREATE TABLE team_bundles (
    org_id       TEXT NOT NULL,
    role         TEXT NOT NULL,             -- received: its tools may be used here. published: others are given it
    version      BIGINT NOT NULL,           -- the highest that was ever seen: an older one is refused
    digest       TEXT NOT NULL,             -- of the manifest: the same version with other content is refused
    key_id       TEXT NOT NULL,             -- of the key that signed it
    bundle       TEXT NOT NULL,
    created_at   @time NOT NULL,            -- as the manifest says
    expires_at   @time NOT NULL,            -- likewise
    received_at  @time NOT NULL,
    received_by  TEXT NOT NULL,
    PRIMARY KEY (org_id, role)
);

CREATE TABLE team_tools (
    org_id             TEXT NOT NULL,
    name               TEXT NOT NULL,       -- of the tool; enforcement.disable_local_tools, which no tool can be called
    found              TEXT,                -- its file in the newest bundle; NULL: it is not in it
    found_hash         TEXT,                -- of the file, and of whether it is enforced
    found_enforced     BOOLEAN NOT NULL,
    found_version      BIGINT NOT NULL,     -- of the bundle that last changed what is found
    rejected_hash      TEXT,                -- what a person rejected
    accepted           TEXT,                -- the file that a person accepted: this is what runs; NULL: none
    accepted_hash      TEXT,
    accepted_enforced  BOOLEAN NOT NULL,
    accepted_version   BIGINT,
    accepted_by        TEXT,
    accepted_at        @time,
    PRIMARY KEY (org_id, name)
);

-- The last look for a newer bundle, and when the next is due: one process makes it.
CREATE TABLE team_syncs (
    org_id     TEXT PRIMARY KEY,
    tried_at   @time,
    failure    TEXT,
    next_at    @time NOT NULL
);
