-- Hub process that runs the call; if it is gone, the outcome of the call is unknown.
ALTER TABLE calls ADD COLUMN hub TEXT;

-- Token buckets of the rate limits.
CREATE TABLE buckets (
    tenant TEXT NOT NULL,
    id     TEXT NOT NULL,
    level  REAL NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
