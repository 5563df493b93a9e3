"""The app that the nightly script opens: one agent, its two tools, and the rules that stand in for a model."""
