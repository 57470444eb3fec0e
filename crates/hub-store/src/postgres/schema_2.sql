-- Which hub makes a call: when it is gone, nobody knows what became of it.
ALTER TABLE calls ADD COLUMN hub TEXT COLLATE "C";

-- The hubs that use this database: since when without a break, and when they were last seen, by its clock.
CREATE TABLE hubs (
    id    TEXT COLLATE "C" PRIMARY KEY,
    since TIMESTAMPTZ NOT NULL,
    seen  TIMESTAMPTZ NOT NULL
);

-- What hubs tell each other, in the order in which it was committed.
CREATE SEQUENCE news_number;
CREATE TABLE news (
    number BIGINT PRIMARY KEY,
    at     TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp(),
    hub    TEXT COLLATE "C" NOT NULL,
    tenant TEXT COLLATE "C",
    kind   TEXT COLLATE "C" NOT NULL,
    body   TEXT NOT NULL
);

-- Numbers of news mean the same for as long as this does.
CREATE TABLE line (id TEXT COLLATE "C" NOT NULL);
INSERT INTO line VALUES (left(md5(random()::TEXT || clock_timestamp()::TEXT), 8));

-- What is left of what may be had in a minute.
CREATE TABLE buckets (
    tenant TEXT COLLATE "C" NOT NULL,
    id     TEXT COLLATE "C" NOT NULL,
    level  DOUBLE PRECISION NOT NULL,
    at     BIGINT NOT NULL,
    PRIMARY KEY (tenant, id)
);
