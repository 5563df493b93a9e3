-- Handlers of events: how far each has come in the log of all conversations, and who calls it now.

CREATE TABLE handler (
    key INTEGER PRIMARY KEY AUTOINCREMENT,
    name TEXT NOT NULL UNIQUE,
    position INTEGER NOT NULL,            -- key of the event up to which all is done
    worker INTEGER,                       -- who calls it, for as long as that one's lease is current
    fence INTEGER NOT NULL DEFAULT 0
) STRICT;

-- What is known of events after a handler's position: those that are done out of order, and those that were tried.
CREATE TABLE delivery (
    handler INTEGER NOT NULL,
    event INTEGER NOT NULL,
    tries INTEGER NOT NULL,
    again_at INTEGER,
    done INTEGER NOT NULL,
    UNIQUE (handler, event)
) STRICT;
