-- Files. Their bytes are here too, so that every server has them: in parts under the key of an upload. A name of bytes is
-- made of their owner and their digest; what an owner stores twice has one name.

CREATE TABLE @file (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    run bigint,                           -- whose tool saved it
    size bigint NOT NULL,
    created_at bigint NOT NULL,
    id text COLLATE "C" NOT NULL UNIQUE,
    principal text COLLATE "C" NOT NULL,
    digest text COLLATE "C" NOT NULL,
    blob text COLLATE "C" NOT NULL,
    name text NOT NULL,
    media_type text NOT NULL
);

CREATE INDEX file_blob ON @file (blob);
CREATE INDEX file_run ON @file (run) WHERE run IS NOT NULL;

-- A file is used in the conversations of messages that it was sent with, and in that of the run whose tool saved it.
CREATE TABLE @file_use (
    file bigint NOT NULL,
    conversation bigint NOT NULL,
    PRIMARY KEY (file, conversation)
);

CREATE INDEX file_use_conversation ON @file_use (conversation);

-- Bytes that are whole have a name; those on their way have none, and the time when their last part came.
CREATE TABLE @upload (
    key bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    touched_at bigint NOT NULL,
    blob text COLLATE "C" UNIQUE
);

CREATE INDEX upload_unfinished ON @upload (touched_at) WHERE blob IS NULL;

CREATE TABLE @upload_part (
    upload bigint NOT NULL,
    start bigint NOT NULL,                -- where in the whole its first byte is
    bytes bytea NOT NULL,
    PRIMARY KEY (upload, start)
);

ALTER TABLE @upload_part ALTER COLUMN bytes SET STORAGE EXTERNAL;
