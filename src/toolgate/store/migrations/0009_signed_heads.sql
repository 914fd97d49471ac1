-- Signed heads of the audit log, and counts of long rate limits.

-- From which row on heads are signed: what was there before this schema was not.
CREATE TABLE audit_signing (
    id     INTEGER PRIMARY KEY,
    first  BIGINT NOT NULL                        -- rows up to this one are outside the signed tree
);
INSERT INTO audit_signing (id, first) SELECT 1, coalesce(max(seq), 0) FROM audit_log;

-- The last signed head of each key, and one for each hour of writing.
CREATE TABLE audit_heads (
    key_id  TEXT NOT NULL,
    hour    BIGINT NOT NULL,
    seq     BIGINT NOT NULL,
    head    TEXT NOT NULL,                        -- JSON: the head as it was signed
    PRIMARY KEY (key_id, hour)
);

-- What calls cost, in the order in which they ended.
CREATE VIEW call_costs AS
SELECT seq, at, tenant AS tenant_id, @text(body,persona) AS persona_id, @text(body,user) AS user_id, tool AS tool_name,
       CAST(@text(body,cost) AS BIGINT) AS nano
FROM audit_log
WHERE kind = 'end' AND seq > 0 AND CAST(@text(body,cost) AS BIGINT) > 0;

-- Calls counted by limits per hour and per day, where Redis does not count them: how many in which slice of time.
CREATE TABLE rate_counts (
    name   TEXT NOT NULL,                         -- of the count: the rule, and for whom it counts
    slice  BIGINT NOT NULL,                       -- seconds since 1970 at which the slice begins
    calls  BIGINT NOT NULL,
    PRIMARY KEY (name, slice)
);
