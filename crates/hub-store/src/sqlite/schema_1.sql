CREATE TABLE documents (
    tenant  TEXT NOT NULL,
    kind    TEXT NOT NULL,
    id      TEXT NOT NULL,
    name    TEXT,
    parent  TEXT,
    version INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, kind, id)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX documents_by_name ON documents (tenant, kind, name) WHERE name IS NOT NULL;
CREATE INDEX documents_by_parent ON documents (tenant, kind, parent, id) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX documents_anywhere ON documents (kind, id) WHERE kind IN ('token', 'session');

CREATE TABLE calls (
    tenant    TEXT NOT NULL,
    id        TEXT NOT NULL,
    server    TEXT NOT NULL,
    tool      TEXT NOT NULL,
    subject   TEXT NOT NULL,
    status    TEXT NOT NULL,
    digest    BLOB NOT NULL,
    arguments BLOB,
    result    BLOB,
    error     BLOB,
    created   INTEGER NOT NULL,
    started   INTEGER,
    completed INTEGER,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
CREATE INDEX calls_by_server ON calls (tenant, server, id);
CREATE INDEX calls_by_tool ON calls (tenant, tool, id);
CREATE INDEX calls_over ON calls (tenant, completed) WHERE completed IS NOT NULL;
CREATE INDEX calls_by_status ON calls (tenant, status, id);
CREATE INDEX calls_by_subject ON calls (tenant, subject, id);

CREATE TABLE approvals (
    tenant     TEXT NOT NULL,
    id         TEXT NOT NULL,
    call       TEXT NOT NULL,
    digest     BLOB NOT NULL,
    decision   TEXT NOT NULL,
    decided_by TEXT,
    created    INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    decided    INTEGER,
    PRIMARY KEY (tenant, id),
    FOREIGN KEY (tenant, call) REFERENCES calls (tenant, id) ON DELETE CASCADE
) STRICT, WITHOUT ROWID;
CREATE INDEX approvals_by_call ON approvals (tenant, call);
CREATE INDEX approvals_by_decision ON approvals (tenant, decision, id);

CREATE TABLE audit (
    tenant TEXT NOT NULL,
    number INTEGER NOT NULL,
    at     INTEGER NOT NULL,
    actor  TEXT NOT NULL,
    action TEXT NOT NULL,
    fields TEXT NOT NULL,
    hash   BLOB NOT NULL,
    PRIMARY KEY (tenant, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE checkpoints (
    tenant    TEXT NOT NULL,
    number    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    hash      BLOB NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (tenant, number)
) STRICT, WITHOUT ROWID;
