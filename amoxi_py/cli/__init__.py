"""The commands, one a file; none is imported before it is called, so that `amoxi --help` stays quick."""
