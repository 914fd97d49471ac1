-- Approvals are bound to where a call works, may need several persons, and keep apart what only an approver may see.

ALTER TABLE approvals ADD COLUMN workspace TEXT NOT NULL DEFAULT '';  -- the folder that the call works in, without links
ALTER TABLE approvals ADD COLUMN sealed TEXT;                         -- encrypted: the arguments as an approver is shown them; gone when answered
ALTER TABLE grants ADD COLUMN workspace TEXT;                         -- of a session's grant: the folder that the session had

CREATE INDEX approvals_recent ON approvals (tenant_id, created_at);
CREATE INDEX approvals_sealed ON approvals (expires_at) WHERE sealed IS NOT NULL;

-- Who agreed to a question that more than one person must agree to.
CREATE TABLE approval_votes (
    approval_id       TEXT NOT NULL,
    answered_by       TEXT NOT NULL,
    answered_through  TEXT NOT NULL,
    created_at        @time NOT NULL,
    PRIMARY KEY (approval_id, answered_by)
);
