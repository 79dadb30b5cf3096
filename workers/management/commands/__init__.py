"""One module per command; each parses, calls one service, and reports."""
