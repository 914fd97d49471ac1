-- `*` stands for all tenants, so no tenant, persona or user has that name any more. Who held a credential of such a name could
-- change what holds for all.
DELETE FROM api_keys WHERE '*' IN (tenant_id, user_id) OR persona_id = '*';
DELETE FROM sign_in_links WHERE '*' IN (tenant_id, user_id) OR persona_id = '*';
DELETE FROM web_sessions WHERE '*' IN (tenant_id, user_id) OR persona_id = '*';
