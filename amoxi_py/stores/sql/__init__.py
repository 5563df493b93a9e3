"""The store's verbs and reads, written once on named SQL; a dialect brings the statements and the connections."""
