-- Calls by the request id that their caller gave. Only records that have one are in the index: the others cost nothing.
CREATE INDEX audit_log_request ON audit_log (@text(body,request_id)) WHERE kind = 'end' AND @has(body,request_id);

CREATE VIEW call_requests AS
SELECT seq, call_id, tenant AS tenant_id, @text(body,request_id) AS request_id
FROM audit_log
WHERE kind = 'end' AND @has(body,request_id);
