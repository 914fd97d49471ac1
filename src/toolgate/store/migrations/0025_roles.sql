-- The roles of a key's holder (model/roles.py), as JSON. Keys made before could call tools, and nothing else.
ALTER TABLE api_keys ADD COLUMN roles TEXT NOT NULL DEFAULT '["caller"]';
