"""Load on a server: a provider that is played, clients that talk to it, and what that cost; `amoxi bench` uses it."""
