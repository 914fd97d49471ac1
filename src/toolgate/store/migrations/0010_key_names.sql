-- A name belongs to one live key of a tenant: it is the key's user where none was given, and what audit and people know it by.
-- The name of a revoked key may be given again: the log says from when to when each had it. Of keys that had one name before
-- this, the first keeps it and the others are renamed; all stay valid.
UPDATE api_keys SET name = name || ' (renamed: ' || id || ')'
    WHERE revoked_at IS NULL AND EXISTS (
        SELECT 1 FROM api_keys AS earlier
        WHERE earlier.tenant_id = api_keys.tenant_id AND earlier.name = api_keys.name AND earlier.revoked_at IS NULL
            AND (earlier.created_at < api_keys.created_at
                OR (earlier.created_at = api_keys.created_at AND earlier.id < api_keys.id))
    );
CREATE UNIQUE INDEX api_keys_live_name ON api_keys (tenant_id, name) WHERE revoked_at IS NULL;
