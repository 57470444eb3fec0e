-- Which hub makes a call: when it is gone, nobody knows what became of it.
ALTER TABLE calls ADD COLUMN hub TEXT;

-- What is left of what may be had in a minute.
CREATE TABLE buckets (
    tenant TEXT NOT NULL,
    id     TEXT NOT NULL,
    level  REAL NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
