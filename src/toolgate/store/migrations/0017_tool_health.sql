-- The health checks of tools that have one: the last result, and when the next is due. Whoever moves next_check makes it.
CREATE TABLE tool_health (
    tool        TEXT PRIMARY KEY,
    state       TEXT NOT NULL,                    -- healthy, unhealthy, unchecked
    message     TEXT,
    last_check  @time,
    next_check  @time NOT NULL
);
