"""Note-based adaptive RAG, its baselines and its metrics, as reproducible notebooks."""
