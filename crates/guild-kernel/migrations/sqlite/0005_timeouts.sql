-- How long a call is awaited, a week at most. Its deadline alone does not tell under which clock it was written.
-- 0: nobody knows.
ALTER TABLE turn_waiting_tools ADD COLUMN timeout_ms BIGINT NOT NULL DEFAULT 0
    CHECK (timeout_ms BETWEEN 0 AND 604800000);
UPDATE turn_waiting_tools SET timeout_ms = deadline_ms - created_ms
    WHERE deadline_ms > created_ms AND deadline_ms - created_ms <= 604800000;
