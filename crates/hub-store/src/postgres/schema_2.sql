-- Hub process that runs the call; if it is gone, the outcome of the call is unknown.
ALTER TABLE calls ADD COLUMN hub TEXT COLLATE "C";

-- Hubs of the cluster: start of the unbroken heartbeat and last heartbeat, by the database clock.
CREATE TABLE hubs (
    id    TEXT COLLATE "C" PRIMARY KEY,
    since TIMESTAMPTZ NOT NULL,
    seen  TIMESTAMPTZ NOT NULL
);

-- Cluster log: messages between hubs, in commit order.
CREATE SEQUENCE news_number;
CREATE TABLE news (
    number BIGINT PRIMARY KEY,
    at     TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    hub    TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C",
    kind   TEXT COLLATE "C" NOT NULL,
    body   TEXT NOT NULL
);

-- Id of the number sequence: numbers of `news` are comparable while it stays the same.
CREATE TABLE line (id TEXT COLLATE "C" NOT NULL);
INSERT INTO line VALUES (left(md5(random()::TEXT || clock_timestamp()::TEXT), 8));

-- Token buckets of the rate limits.
CREATE TABLE buckets (
    tenant TEXT COLLATE "C" NOT NULL,
    id     TEXT COLLATE "C" NOT NULL,
    level  DOUBLE PRECISION NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
