"""`python -m bench papers`: what the works behind Tilewright claim beside what is had here, as a page."""
