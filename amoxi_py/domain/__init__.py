"""Frozen values and the pure rules that everything hangs on; standard library and `errors` only."""
