-- Counts of calls that ended, made from the audit log behind a watermark; call_statistics.py says how. They can be made anew.
CREATE TABLE call_statistics (
    tenant_id  TEXT NOT NULL,
    facet      TEXT NOT NULL,                     -- '': all calls of the tenant; persona, door, user: those of `value`
    span       INTEGER NOT NULL,                  -- seconds that are counted together: an hour, or a day (UTC)
    by_tool    INTEGER NOT NULL,                  -- 0: all tools together; 1: each on its own
    value      TEXT NOT NULL,
    starts     BIGINT NOT NULL,                   -- seconds since 1970
    tool_name  TEXT NOT NULL,
    status     TEXT NOT NULL,
    code       TEXT NOT NULL,                     -- '': no error
    calls      BIGINT NOT NULL,
    ran        BIGINT NOT NULL,                   -- calls whose tool was run
    nano       BIGINT NOT NULL,                   -- nano-dollars
    tokens     BIGINT NOT NULL,
    -- the calls that ran, by duration
    l00 INTEGER NOT NULL DEFAULT 0, l01 INTEGER NOT NULL DEFAULT 0, l02 INTEGER NOT NULL DEFAULT 0, l03 INTEGER NOT NULL DEFAULT 0,
    l04 INTEGER NOT NULL DEFAULT 0, l05 INTEGER NOT NULL DEFAULT 0, l06 INTEGER NOT NULL DEFAULT 0, l07 INTEGER NOT NULL DEFAULT 0,
    l08 INTEGER NOT NULL DEFAULT 0, l09 INTEGER NOT NULL DEFAULT 0, l10 INTEGER NOT NULL DEFAULT 0, l11 INTEGER NOT NULL DEFAULT 0,
    l12 INTEGER NOT NULL DEFAULT 0, l13 INTEGER NOT NULL DEFAULT 0, l14 INTEGER NOT NULL DEFAULT 0, l15 INTEGER NOT NULL DEFAULT 0,
    l16 INTEGER NOT NULL DEFAULT 0, l17 INTEGER NOT NULL DEFAULT 0, l18 INTEGER NOT NULL DEFAULT 0, l19 INTEGER NOT NULL DEFAULT 0,
    l20 INTEGER NOT NULL DEFAULT 0, l21 INTEGER NOT NULL DEFAULT 0, l22 INTEGER NOT NULL DEFAULT 0, l23 INTEGER NOT NULL DEFAULT 0,
    l24 INTEGER NOT NULL DEFAULT 0, l25 INTEGER NOT NULL DEFAULT 0, l26 INTEGER NOT NULL DEFAULT 0, l27 INTEGER NOT NULL DEFAULT 0,
    l28 INTEGER NOT NULL DEFAULT 0, l29 INTEGER NOT NULL DEFAULT 0, l30 INTEGER NOT NULL DEFAULT 0, l31 INTEGER NOT NULL DEFAULT 0,
    l32 INTEGER NOT NULL DEFAULT 0, l33 INTEGER NOT NULL DEFAULT 0, l34 INTEGER NOT NULL DEFAULT 0, l35 INTEGER NOT NULL DEFAULT 0,
    l36 INTEGER NOT NULL DEFAULT 0, l37 INTEGER NOT NULL DEFAULT 0, l38 INTEGER NOT NULL DEFAULT 0, l39 INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (tenant_id, facet, span, by_tool, value, starts, tool_name, status, code)
) @clustered;

-- The last row of the log that is counted.
CREATE TABLE call_statistics_progress (
    id   INTEGER PRIMARY KEY,
    seq  BIGINT NOT NULL
);
INSERT INTO call_statistics_progress (id, seq) VALUES (1, 0);

DROP VIEW call_usage;
