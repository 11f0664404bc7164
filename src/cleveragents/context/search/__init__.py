"""Search functions that strategies share: BM25, paths, names, imports, history and word vectors."""
