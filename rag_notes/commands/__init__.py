"""What each command of `rag-notes` does; modules that load slowly are imported by the command that needs them."""
