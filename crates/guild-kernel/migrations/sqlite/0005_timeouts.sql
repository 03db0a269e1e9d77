-- How long a call is awaited. Its deadline alone does not tell under which clock it was written. 0: nobody knows.
ALTER TABLE turn_waiting_tools ADD COLUMN timeout_ms BIGINT NOT NULL DEFAULT 0;
UPDATE turn_waiting_tools SET timeout_ms = deadline_ms - created_ms WHERE deadline_ms > created_ms;
