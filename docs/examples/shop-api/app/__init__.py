"""The shop: its database, people and rules, and the agents that came to them."""
