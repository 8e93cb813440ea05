"""Executors run jobs over shards: processes of this machine, or a Ray cluster."""
