"""Training of the papers' models: what makes the examples, and what trains on them."""
