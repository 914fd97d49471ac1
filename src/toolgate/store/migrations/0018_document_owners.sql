-- The same content may be there once for each user who took it in: nobody's copy replaces another's.
DROP INDEX documents_content;
CREATE UNIQUE INDEX documents_content ON documents (tenant_id, persona_id, created_by, sha256);
