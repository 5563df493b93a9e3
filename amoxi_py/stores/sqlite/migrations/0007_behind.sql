-- What a handler is not done with before its position: one row for each conversation, so that what others do meanwhile
-- leaves no rows. All of the conversation's events from `seq` on are still to be told; the tries are those of the first.

CREATE TABLE behind (
    handler INTEGER NOT NULL,
    conversation INTEGER NOT NULL,
    seq INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    again_at INTEGER,
    UNIQUE (handler, conversation)
) STRICT;

DROP TABLE delivery;
