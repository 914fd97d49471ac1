-- The questions that wait, of all tenants, oldest first: without it, those that were ever answered are walked through.
CREATE INDEX approvals_waiting ON approvals (created_at, id) WHERE state = 'waiting';
