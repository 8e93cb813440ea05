"""BM25 retrieval with the task texts as queries, and the guard that keeps dev and test texts out."""
