"""`python -m bench sizes`: what one program for all sizes of a dimension costs beside one compiled for each size."""
