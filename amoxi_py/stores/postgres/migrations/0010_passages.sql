-- Passages of text in spaces: what is remembered of a principal, and what an app's documents say.

CREATE TABLE @passage_space (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    version bigint NOT NULL DEFAULT 0,    -- one more with each write
    name text COLLATE "C" NOT NULL UNIQUE
) WITH (fillfactor = 70);

CREATE TABLE @passage (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    space bigint NOT NULL,
    created_at bigint NOT NULL,
    updated_at bigint NOT NULL,
    version integer NOT NULL DEFAULT 1,   -- of what its vectors are of
    id text COLLATE "C" NOT NULL,
    name text COLLATE "C" NOT NULL,
    embedder text COLLATE "C",            -- of a vector that it has
    source text COLLATE "C",              -- NULL for memories
    digest text COLLATE "C" NOT NULL,
    metadata text NOT NULL,
    text text NOT NULL
);

-- Over a digest: a name may be longer than what an index takes.
CREATE UNIQUE INDEX passage_name ON @passage (space, md5(name));
CREATE UNIQUE INDEX passage_id ON @passage (space, id);
CREATE INDEX passage_written ON @passage (space, updated_at, key);
CREATE INDEX passage_of_source ON @passage (space, md5(source)) WHERE source IS NOT NULL;
CREATE INDEX passage_age ON @passage (updated_at, key) WHERE source IS NULL;
CREATE INDEX passage_embedder ON @passage (embedder, key);

-- Numbers and not pgvector's type, so that they can be kept also where pgvector is not, or not yet.
CREATE TABLE @passage_vector (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    passage bigint NOT NULL,
    space bigint NOT NULL,
    embedder text COLLATE "C" NOT NULL,
    vector real[] NOT NULL,
    UNIQUE (passage, embedder)
);

CREATE INDEX passage_vector_space ON @passage_vector (space, embedder);
CREATE INDEX passage_vector_embedder ON @passage_vector (embedder, key);

CREATE TABLE @passage_source (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    space bigint NOT NULL,
    source text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL
);

CREATE UNIQUE INDEX passage_source_name ON @passage_source (space, md5(source));

-- The words of a text as `stores/sql/words.py` finds them, and the key of its space behind @, which no word has.
CREATE TABLE @passage_words (
    passage bigint PRIMARY KEY,
    space bigint NOT NULL,
    words tsvector NOT NULL
);

CREATE INDEX passage_words_index ON @passage_words USING gin (words);
