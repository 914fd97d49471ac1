-- Who registered a tool at run time, by which door, and when its definition was last changed.
ALTER TABLE dynamic_tools ADD COLUMN registered_by_user TEXT;
ALTER TABLE dynamic_tools ADD COLUMN registered_door TEXT;
ALTER TABLE dynamic_tools ADD COLUMN updated_at @time;

-- The registrations of the last hour: a tool that is removed again counts all the same.
CREATE TABLE tool_registrations (
    id         @serial,
    tenant_id  TEXT NOT NULL,
    created_at @time NOT NULL
);
CREATE INDEX tool_registrations_tenant ON tool_registrations (tenant_id, created_at);
