-- The calls that ended, with what a summary of usage counts.
CREATE VIEW call_usage AS
SELECT seq, at, tenant AS tenant_id, @text(body,user) AS user_id, tool AS tool_name, status,
       coalesce(CAST(@text(body,cost) AS BIGINT), 0) AS nano,
       coalesce(CAST(@text(body,tokens_used) AS BIGINT), 0) AS tokens
FROM audit_log
WHERE kind = 'end';

-- A tenant's flag that an operator set is not its admins' to change. Those that are there were set on the command line.
ALTER TABLE tenant_tool_flags ADD COLUMN by_operator BOOLEAN NOT NULL DEFAULT TRUE;
