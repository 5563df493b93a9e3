"""The A2A surface: other organizations' agents send this app tasks, which are runs."""
