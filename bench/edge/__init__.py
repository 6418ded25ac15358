"""Models legalised for accelerators with few operators: what runs there, errors, and times by the profiles' formula."""
