"""What the engine needs of the world, as protocols; the adapters are in `stores` and `models`."""
