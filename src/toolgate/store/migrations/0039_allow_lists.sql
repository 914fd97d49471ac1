-- The tools that the callers of a tenant have, and no others.
CREATE TABLE tenant_allow_lists (
    tenant_id   TEXT PRIMARY KEY,
    document    TEXT NOT NULL,                    -- JSON: {personas, no_persona, everybody, unlisted_personas}
    updated_at  @time NOT NULL DEFAULT @now
);

-- Calls of a persona are counted for each tool too, by day: all is counted anew.
UPDATE call_statistics_progress SET seq = 0 WHERE id = 1;
DELETE FROM call_statistics;
