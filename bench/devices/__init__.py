"""Several unequal cores that share one model, beside each of them alone."""
