"""SQL databases: what their dialects share. Each dialect is an adapter in a folder of its own."""
