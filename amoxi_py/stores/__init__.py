"""Durable storage behind the `Store` port: the logic once in `sql`, a dialect each in `sqlite` and `postgres`."""
