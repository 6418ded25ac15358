"""Program to Artifact: one file with fixed bytes; knows the nouns, no other stage."""
