-- Calls of MCP clients that go on after their request was answered: any process on this database can say how they stand,
-- pass on an answer or a cancellation, and go on with them when their own process has died.
CREATE TABLE mcp_tasks (
    id           TEXT PRIMARY KEY,
    kind         TEXT NOT NULL,                 -- task; held: a call that waits for answers to its tool's questions
    credential   TEXT NOT NULL,                 -- the id of the credential that made the call: nobody else finds it
    actor        TEXT NOT NULL,                 -- JSON
    tenant_id    TEXT NOT NULL,
    tool_name    TEXT NOT NULL,
    request      TEXT,                          -- encrypted: arguments and whatever else is needed to make the call again
    state        TEXT NOT NULL,                 -- working, input_required, completed, failed, cancelled
    message      TEXT,
    approval_id  TEXT,                          -- the approval that it waits for, or was last made with
    questions    TEXT,                          -- encrypted: to the client, not answered yet
    result       TEXT,                          -- JSON, as it is given out: secrets masked
    process_id   TEXT,                          -- the process that runs it; NULL: none
    runs         INTEGER NOT NULL,              -- how many processes have had it
    created_at   @time NOT NULL,
    updated_at   @time NOT NULL,
    expires_at   @time NOT NULL
);
CREATE INDEX mcp_tasks_owner ON mcp_tasks (credential, expires_at);
CREATE INDEX mcp_tasks_state ON mcp_tasks (state);
CREATE INDEX mcp_tasks_expired ON mcp_tasks (expires_at);

-- Answers that another process than the task's own has received.
CREATE TABLE mcp_task_answers (
    task_id   TEXT NOT NULL,
    question  TEXT NOT NULL,
    answer    TEXT NOT NULL,                    -- encrypted
    PRIMARY KEY (task_id, question)
);
