"""Headers that programs for CPUs are made with: kernels, lanes, hand-overs."""
