"""`python -m bench texts`: encoders on texts of unequal lengths, beside peers that pad."""
