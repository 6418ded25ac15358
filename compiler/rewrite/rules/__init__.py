"""The rewrite rules, one file per subject: know nouns, operators and the engine, no other stage."""
