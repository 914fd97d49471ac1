-- Things that one process compares and changes at this moment, while the others wait: conditional changes over HTTP.
CREATE TABLE change_locks (
    name       TEXT PRIMARY KEY,
    process_id TEXT NOT NULL
);
