"""The composition root: the only place that knows all parts of a process and puts them together."""
