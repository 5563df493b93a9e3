-- Small things of surfaces that expire; what was taken stays as an empty row for a while, with the name of its taker.

CREATE TABLE record (
    place INTEGER PRIMARY KEY,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    family TEXT,                          -- what it belongs to
    content TEXT NOT NULL,
    expires_at INTEGER,
    taken_by TEXT,
    UNIQUE (kind, key)
) STRICT;

CREATE INDEX record_family ON record (kind, family, key) WHERE family IS NOT NULL;
CREATE INDEX record_expiry ON record (expires_at) WHERE expires_at IS NOT NULL;
