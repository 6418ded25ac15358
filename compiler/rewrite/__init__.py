"""Graph to Graph: the engine that applies rules; knows nouns and operators, no other stage."""
