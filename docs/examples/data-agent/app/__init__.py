"""The app: an agent that is sent tables, tells what is in them, and draws charts of them."""
