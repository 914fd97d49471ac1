-- A grant may be for one call's arguments alone, and for so many calls.
ALTER TABLE grants ADD COLUMN args_hash TEXT;  -- of the canonical arguments that it covers; NULL: whatever the arguments
ALTER TABLE grants ADD COLUMN arguments TEXT;  -- those, as records hold them
ALTER TABLE grants ADD COLUMN max_uses BIGINT; -- calls that it covers in all; NULL: any number
