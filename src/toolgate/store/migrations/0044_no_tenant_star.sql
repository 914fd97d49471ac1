-- `*` stands for all tenants, so no tenant or persona has that name any more: who held a credential of it could change what
-- holds for all. What such an actor left that would be looked at again goes too; the audit log stays as it is. The users
-- `toolgate` and `schedule` are Toolgate's own.
DELETE FROM api_keys WHERE '*' IN (tenant_id, user_id) OR persona_id = '*' OR LOWER(user_id) IN ('toolgate', 'schedule');
DELETE FROM sign_in_links WHERE '*' IN (tenant_id, user_id) OR persona_id = '*' OR LOWER(user_id) IN ('toolgate', 'schedule');
DELETE FROM web_sessions WHERE '*' IN (tenant_id, user_id) OR persona_id = '*' OR LOWER(user_id) IN ('toolgate', 'schedule');
DELETE FROM approvals WHERE tenant_id = '*' OR persona_id = '*';
DELETE FROM grants WHERE tenant_id = '*' OR persona_id = '*';
DELETE FROM continuations WHERE tenant_id = '*' OR persona_id = '*';
DELETE FROM schedules WHERE tenant_id = '*' OR persona_id = '*';
DELETE FROM jobs WHERE tenant_id = '*' OR persona_id = '*';
DELETE FROM agent_runs WHERE tenant_id = '*' OR persona_id = '*';
DELETE FROM workflow_invocations WHERE tenant_id = '*' OR persona_id = '*';
DELETE FROM tenant_tool_flags WHERE tenant_id = '*';
DELETE FROM persona_tool_restrictions WHERE persona_id = '*';
