"""Facts about hardware, no code: what a target's vector unit, registers and caches are, and how a C compiler is told so."""
