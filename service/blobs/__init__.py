"""Where the bytes of models and artifacts are kept."""
