-- Strings are compared bytewise, as everywhere else in the hub.
CREATE TABLE documents (
    tenant  TEXT COLLATE "C" NOT NULL,
    kind    TEXT COLLATE "C" NOT NULL,
    id      TEXT COLLATE "C" NOT NULL,
    name    TEXT COLLATE "C",
    parent  TEXT COLLATE "C",
    version BIGINT NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, kind, id)
);
CREATE UNIQUE INDEX documents_by_name ON documents (tenant, kind, name) WHERE name IS NOT NULL;
CREATE INDEX documents_by_parent ON documents (tenant, kind, parent, id) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX documents_anywhere ON documents (kind, id) WHERE kind IN ('token', 'session');

CREATE TABLE calls (
    tenant    TEXT COLLATE "C" NOT NULL,
    id        TEXT COLLATE "C" NOT NULL,
    server    TEXT COLLATE "C" NOT NULL,
    tool      TEXT COLLATE "C" NOT NULL,
    subject   TEXT COLLATE "C" NOT NULL,
    status    TEXT COLLATE "C" NOT NULL,
    digest    BYTEA NOT NULL,
    arguments BYTEA,
    result    BYTEA,
    error     BYTEA,
    created   BIGINT NOT NULL,
    started   BIGINT,
    completed BIGINT,
    PRIMARY KEY (tenant, id)
);
CREATE INDEX calls_by_server ON calls (tenant, server, id);
CREATE INDEX calls_by_tool ON calls (tenant, tool, id);
CREATE INDEX calls_over ON calls (tenant, completed) WHERE completed IS NOT NULL;
CREATE INDEX calls_by_status ON calls (tenant, status, id);
CREATE INDEX calls_by_subject ON calls (tenant, subject, id);

CREATE TABLE approvals (
    tenant     TEXT COLLATE "C" NOT NULL,
    id         TEXT COLLATE "C" NOT NULL,
    call       TEXT COLLATE "C" NOT NULL,
    digest     BYTEA NOT NULL,
    decision   TEXT COLLATE "C" NOT NULL,
    decided_by TEXT,
    created    BIGINT NOT NULL,
    expires    BIGINT NOT NULL,
    decided    BIGINT,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, call) REFERENCES calls (tenant, id) ON DELETE CASCADE
);
CREATE INDEX approvals_by_call ON approvals (tenant, call, id);
CREATE INDEX approvals_by_decision ON approvals (tenant, decision, id);

CREATE TABLE audit (
    tenant TEXT COLLATE "C" NOT NULL,
    number BIGINT NOT NULL,
    at     BIGINT NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    fields TEXT NOT NULL,
    hash   BYTEA NOT NULL,
    PRIMARY KEY (tenant, number)
);

CREATE TABLE checkpoints (
    tenant    TEXT COLLATE "C" NOT NULL,
    number    BIGINT NOT NULL,
    at        BIGINT NOT NULL,
    hash      BYTEA NOT NULL,
    signature BYTEA NOT NULL,
    PRIMARY KEY (tenant, number)
);
