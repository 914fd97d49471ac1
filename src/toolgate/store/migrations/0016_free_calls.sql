-- The calls of tools whose service has a free tier, in the period that counts.
CREATE TABLE free_calls (
    tool     TEXT NOT NULL,
    account  TEXT NOT NULL,                       -- whose credential pays: its key, without its value
    starts   TEXT NOT NULL,                       -- the first day of the period
    used     BIGINT NOT NULL,
    PRIMARY KEY (tool, account, starts)
);
