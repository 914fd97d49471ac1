-- Vectors of texts by which tools are found, so that no process computes what another has computed. They can be made anew.
CREATE TABLE tool_vectors (
    model    TEXT NOT NULL,     -- that made the vector: those of two models can't be compared
    digest   TEXT NOT NULL,     -- SHA-256 of the text, which is not kept here
    vector   @bytes NOT NULL,   -- float16, little-endian
    made_at  @time NOT NULL,
    PRIMARY KEY (model, digest)
);
