-- A grant may be for the turns of one run of an agent alone: what else asks the model meanwhile is asked about.
ALTER TABLE grants ADD COLUMN run_id TEXT;    -- the outermost run whose turns it covers; NULL: whatever makes the call
ALTER TABLE approvals ADD COLUMN run_id TEXT; -- the outermost run whose turn is asked about; NULL: none
