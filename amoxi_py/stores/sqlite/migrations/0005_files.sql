-- The bytes of a file are beside the database, under a name made of its owner and their digest. A file is used in the
-- conversations of messages that it was sent with, and in that of the run whose tool saved it.

ALTER TABLE file ADD COLUMN digest TEXT NOT NULL DEFAULT '';
ALTER TABLE file ADD COLUMN blob TEXT NOT NULL DEFAULT '';
ALTER TABLE file ADD COLUMN run INTEGER;   -- whose tool saved it

CREATE INDEX file_blob ON file (blob);
CREATE INDEX file_run ON file (run) WHERE run IS NOT NULL;

CREATE TABLE file_use (
    file INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    UNIQUE (file, conversation)
) STRICT;

CREATE INDEX file_use_conversation ON file_use (conversation);
