"""Headers that programs for GPUs are made with: PTX behind names, the host's runtime."""
