"""Durable execution: submit, claim, execute, approve, cancel, follow; on ports and definitions only."""
