"""The step that plans: candidates, which plan is taken, and further ones for cores in another state."""
