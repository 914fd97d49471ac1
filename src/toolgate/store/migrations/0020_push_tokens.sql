-- Where users want their notifications sent, and what is to be tried again of a notification.
CREATE TABLE push_tokens (
    id           TEXT PRIMARY KEY,
    tenant_id    TEXT NOT NULL,
    user_id      TEXT NOT NULL,
    number       BIGINT NOT NULL,                 -- among the user's, from 1: two that add at once can't both take the last
    name         TEXT NOT NULL,
    kind         TEXT NOT NULL,                   -- the scheme of its URL
    sealed       TEXT NOT NULL,                   -- the URL, encrypted: it is a credential
    created_at   @time NOT NULL,
    delivered_at @time,
    last_error   TEXT                             -- why the last message was not taken; NULL: it was
);
CREATE UNIQUE INDEX push_tokens_number ON push_tokens (tenant_id, user_id, number);
CREATE UNIQUE INDEX push_tokens_name ON push_tokens (tenant_id, user_id, name);

ALTER TABLE notifications ADD COLUMN title TEXT;
ALTER TABLE notifications ADD COLUMN data TEXT;   -- JSON
ALTER TABLE notifications ADD COLUMN retry TEXT;  -- channels and tokens that are to be tried again, as JSON; NULL: all

-- Signed messages that were taken: the same signature does not bring in another one.
CREATE TABLE seen_signatures (
    digest      TEXT PRIMARY KEY,
    message_id  TEXT NOT NULL,
    expires_at  @time NOT NULL
);
CREATE INDEX seen_signatures_expiry ON seen_signatures (expires_at);
