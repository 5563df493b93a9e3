"""The HTTP door: routes by noun behind one `Door`, problems for errors, event streams for logs."""
