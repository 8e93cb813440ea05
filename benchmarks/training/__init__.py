"""Training speed against its peers: how many real tokens a second."""
