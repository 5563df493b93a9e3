"""An ops bot: engineers deploy by asking for it, and production takes a second pair of eyes."""
