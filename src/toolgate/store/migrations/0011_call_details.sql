-- What is kept of calls beside their records: stages and output. Outside the hash chain, because retention removes it; the end
-- record, whose number it has, holds its hash.
CREATE TABLE call_details (
    seq      @bigint PRIMARY KEY,                 -- of the end record in audit_log
    at       BIGINT NOT NULL,                     -- when the call ended: microseconds since 1970
    total    BIGINT NOT NULL,                     -- bytes of all details up to this one, so that nothing has to be counted
    content  @bytes NOT NULL                      -- JSON
);
