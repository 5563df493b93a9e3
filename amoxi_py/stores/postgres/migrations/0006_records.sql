-- Small things of surfaces that expire; what was taken stays as an empty row for a while, with the name of its taker.

CREATE TABLE @record (
    expires_at bigint,
    kind text COLLATE "C" NOT NULL,
    key text COLLATE "C" NOT NULL,
    family text COLLATE "C",              -- what it belongs to
    content text NOT NULL,
    taken_by text COLLATE "C",
    PRIMARY KEY (kind, key)
);

CREATE INDEX record_family ON @record (kind, family, key) WHERE family IS NOT NULL;
CREATE INDEX record_expiry ON @record (expires_at) WHERE expires_at IS NOT NULL;
