-- The ports of sandboxes that have an address at this node.
CREATE TABLE hosting_port (
    sandbox_id TEXT   NOT NULL REFERENCES hosting_sandbox (sandbox_id),
    port       BIGINT NOT NULL CHECK (port BETWEEN 1 AND 65535),
    created_ms BIGINT NOT NULL,
    PRIMARY KEY (sandbox_id, port)
);
