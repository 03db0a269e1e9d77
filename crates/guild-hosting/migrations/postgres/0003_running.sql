-- How many jobs of a user run is asked for each new one, and must not depend on how many have ended.
CREATE INDEX hosting_job_running ON hosting_job (user_id) WHERE status = 'running';
