"""HTTP: routes translate requests into commands and their outcome into responses."""
