-- Calls that came over an event stream: what came of each, so that the same message is answered again and not run again.
CREATE TABLE event_requests (
    key_name    TEXT NOT NULL,                    -- the key that signed it
    id          TEXT NOT NULL,                    -- as the message has it
    digest      TEXT NOT NULL,                    -- of the message: another one under the same id is refused
    tenant_id   TEXT NOT NULL,
    session_id  TEXT,
    order_key   TEXT NOT NULL,                    -- under which its result is published
    pending_kind TEXT,                            -- what it waits for, or waited for: approval or job
    pending_id  TEXT,
    result      TEXT,                             -- the message that answers it; NULL: it waits
    published   INTEGER NOT NULL,                 -- 1: nobody has to publish the result any more
    deadline    @time NOT NULL,
    updated_at  @time NOT NULL,
    PRIMARY KEY (key_name, id)
);
CREATE INDEX event_requests_waiting ON event_requests (published, updated_at);
CREATE INDEX event_requests_deadline ON event_requests (deadline);
