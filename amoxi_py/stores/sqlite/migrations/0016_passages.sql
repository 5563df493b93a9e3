-- Passages of text in spaces: what is remembered of a principal, and what an app's documents say.

CREATE TABLE passage_space (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    version INTEGER NOT NULL DEFAULT 0    -- one more with each write: what a process has in memory of it is of one version
) STRICT;

CREATE TABLE passage (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    space INTEGER NOT NULL,
    id TEXT NOT NULL,
    name TEXT NOT NULL,
    source TEXT,                          -- NULL for memories
    text TEXT NOT NULL,
    metadata TEXT NOT NULL,
    digest TEXT NOT NULL,
    version INTEGER NOT NULL DEFAULT 1,   -- of what its vectors are of
    embedder TEXT,                        -- of a vector that it has
    created_at INTEGER NOT NULL,
    updated_at INTEGER NOT NULL,
    UNIQUE (space, name),
    UNIQUE (space, id)
) STRICT;

CREATE INDEX passage_written ON passage (space, updated_at, key);
CREATE INDEX passage_of_source ON passage (space, source) WHERE source IS NOT NULL;
CREATE INDEX passage_age ON passage (updated_at, key) WHERE source IS NULL;
CREATE INDEX passage_embedder ON passage (embedder, key);

CREATE TABLE passage_vector (
    key INTEGER PRIMARY KEY,
    passage INTEGER NOT NULL,
    space INTEGER NOT NULL,
    embedder TEXT NOT NULL,
    vector BLOB NOT NULL,                 -- float32, little endian
    UNIQUE (passage, embedder)
) STRICT;

CREATE INDEX passage_vector_space ON passage_vector (space, embedder);
CREATE INDEX passage_vector_embedder ON passage_vector (embedder);

CREATE TABLE passage_source (
    key INTEGER PRIMARY KEY,
    space INTEGER NOT NULL,
    source TEXT NOT NULL,
    digest TEXT NOT NULL,
    UNIQUE (space, source)
) STRICT;

-- The words of a text as `stores/sql/words.py` finds them, and the key of its space as a word of its own.
CREATE VIRTUAL TABLE passage_words USING fts5(words, space, tokenize = 'unicode61 remove_diacritics 0');
