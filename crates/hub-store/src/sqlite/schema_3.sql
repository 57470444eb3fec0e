-- Tenants have numbers, ids are bytes, and only calls that are running, pending or without success are in an index of
-- their status: few statements and pages per call.
ALTER TABLE documents RENAME TO old_documents;
ALTER TABLE calls RENAME TO old_calls;
ALTER TABLE approvals RENAME TO old_approvals;
ALTER TABLE audit RENAME TO old_audit;
ALTER TABLE checkpoints RENAME TO old_checkpoints;
ALTER TABLE buckets RENAME TO old_buckets;

CREATE TABLE tenants (
    number INTEGER PRIMARY KEY,
    id     BLOB NOT NULL UNIQUE
) STRICT;
INSERT INTO tenants (id) SELECT unhex(id, '-') FROM (
    SELECT tenant AS id FROM old_documents UNION SELECT tenant FROM old_calls UNION SELECT tenant FROM old_audit
    UNION SELECT tenant FROM old_checkpoints UNION SELECT tenant FROM old_buckets
) ORDER BY id;

CREATE TABLE documents (
    tenant  INTEGER NOT NULL,
    kind    TEXT NOT NULL,
    id      TEXT NOT NULL,
    name    TEXT,
    parent  TEXT,
    version INTEGER NOT NULL,
    body    TEXT NOT NULL,
    PRIMARY KEY (tenant, kind, id)
) STRICT, WITHOUT ROWID;
INSERT INTO documents SELECT tenants.number, kind, old.id, name, parent, version, body
    FROM old_documents AS old JOIN tenants ON tenants.id = unhex(old.tenant, '-');
DROP TABLE old_documents;
CREATE UNIQUE INDEX documents_by_name ON documents (tenant, kind, name) WHERE name IS NOT NULL;
CREATE INDEX documents_by_parent ON documents (tenant, kind, parent, id) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX documents_anywhere ON documents (kind, id) WHERE kind IN ('token', 'session');

-- The table has a row number: pages of its tree have many keys, and the outcome of a call finds its row at once.
CREATE TABLE calls (
    number    INTEGER PRIMARY KEY,
    tenant    INTEGER NOT NULL,
    id        BLOB NOT NULL,
    server    BLOB NOT NULL,
    tool      TEXT NOT NULL,
    subject   TEXT NOT NULL,
    status    TEXT NOT NULL,
    created   INTEGER NOT NULL,
    started   INTEGER,
    completed INTEGER,
    hub       TEXT,
    digest    BLOB NOT NULL,
    error     BLOB,
    arguments BLOB,
    result    BLOB
) STRICT;
INSERT INTO calls (tenant, id, server, tool, subject, status, created, started, completed, hub, digest, error,
        arguments, result)
    SELECT tenants.number, unhex(old.id, '-'), unhex(server, '-'), tool, subject, status, created, started, completed,
        CASE WHEN status = 'running' THEN hub END, digest, error, arguments, result
    FROM old_calls AS old JOIN tenants ON tenants.id = unhex(old.tenant, '-') ORDER BY tenants.number, old.id;
CREATE UNIQUE INDEX calls_by_id ON calls (tenant, id);

CREATE TABLE approvals (
    number     INTEGER PRIMARY KEY,
    tenant     INTEGER NOT NULL,
    id         BLOB NOT NULL,
    call       BLOB NOT NULL,
    digest     BLOB NOT NULL,
    decision   TEXT NOT NULL,
    decided_by TEXT,
    created    INTEGER NOT NULL,
    expires    INTEGER NOT NULL,
    decided    INTEGER,
    FOREIGN KEY (tenant, call) REFERENCES calls (tenant, id) ON DELETE CASCADE
) STRICT;
INSERT INTO approvals (tenant, id, call, digest, decision, decided_by, created, expires, decided)
    SELECT tenants.number, unhex(old.id, '-'), unhex(call, '-'), digest, decision, decided_by, created, expires, decided
    FROM old_approvals AS old JOIN tenants ON tenants.id = unhex(old.tenant, '-') ORDER BY tenants.number, old.id;
DROP TABLE old_approvals;
DROP TABLE old_calls;
CREATE INDEX calls_by_status ON calls (tenant, status, id) WHERE status <> 'success';
CREATE UNIQUE INDEX approvals_by_id ON approvals (tenant, id);
CREATE INDEX approvals_by_call ON approvals (tenant, call, id);
CREATE INDEX approvals_by_decision ON approvals (tenant, decision, id);

-- The position is the number of the tenant times 2^40 plus the number of the entry: a table without an index.
CREATE TABLE audit (
    position INTEGER PRIMARY KEY,
    at       INTEGER NOT NULL,
    actor    TEXT NOT NULL,
    action   TEXT NOT NULL,
    fields   TEXT NOT NULL,
    hash     BLOB NOT NULL
) STRICT;
INSERT INTO audit SELECT (tenants.number << 40) + old.number, at, actor, action, fields, hash
    FROM old_audit AS old JOIN tenants ON tenants.id = unhex(old.tenant, '-') ORDER BY 1;
DROP TABLE old_audit;

CREATE TABLE checkpoints (
    tenant    INTEGER NOT NULL,
    number    INTEGER NOT NULL,
    at        INTEGER NOT NULL,
    hash      BLOB NOT NULL,
    signature BLOB NOT NULL,
    PRIMARY KEY (tenant, number)
) STRICT, WITHOUT ROWID;
INSERT INTO checkpoints SELECT tenants.number, old.number, at, hash, signature
    FROM old_checkpoints AS old JOIN tenants ON tenants.id = unhex(old.tenant, '-');
DROP TABLE old_checkpoints;

CREATE TABLE buckets (
    tenant INTEGER NOT NULL,
    id     TEXT NOT NULL,
    level  REAL NOT NULL,
    at     INTEGER NOT NULL,
    PRIMARY KEY (tenant, id)
) STRICT, WITHOUT ROWID;
INSERT INTO buckets SELECT tenants.number, old.id, level, at
    FROM old_buckets AS old JOIN tenants ON tenants.id = unhex(old.tenant, '-');
DROP TABLE old_buckets;
