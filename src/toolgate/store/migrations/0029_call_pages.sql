-- Lists of calls and of what belongs to them, newest first, that take as long in a long log as in a short one.
-- The user of a call as its record has it, in quotes: taken out as text, because a row that somebody has made something other
-- than JSON must not keep the index from being kept.
CREATE INDEX audit_log_user ON audit_log (tenant, @member(body,user,session), seq) WHERE kind = 'end';
CREATE INDEX audit_log_failed ON audit_log (tenant, seq) WHERE kind = 'end' AND status <> 'success';
CREATE INDEX audit_log_acts ON audit_log (tenant, seq) WHERE kind <> 'start' AND kind <> 'end';
CREATE INDEX audit_log_parent ON audit_log (@text(body,parent)) WHERE kind = 'end' AND @has(body,parent);

CREATE VIEW call_ends AS
SELECT seq, at, kind, call_id, tenant, tool, status, body, hash, @member(body,user,session) AS user_text
FROM audit_log
WHERE kind = 'end';

CREATE VIEW call_parents AS
SELECT seq, @text(body,parent) AS parent_id
FROM audit_log
WHERE kind = 'end' AND @has(body,parent);

CREATE INDEX jobs_of_user ON jobs (tenant_id, user_id, id);
CREATE INDEX schedules_of_tenant ON schedules (tenant_id, id);
CREATE INDEX notifications_of_tenant ON notifications (tenant_id, id);
CREATE INDEX documents_of_tenant ON documents (tenant_id, id);
