"""From Python functions and classes to frozen definitions: signature, docstring, schema, injected things, scan."""
