"""The embedded store: one SQLite file that several processes of one machine share."""
