"""BM25 retrieval with the task texts as queries, and the contamination filter that keeps dev and test texts out."""
