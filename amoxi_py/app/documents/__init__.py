"""Documents of a folder, and what of them is searched: which files there are, what they say, and where it is cut."""
