"""Whether an artifact computes what the model says.

reference  the model evaluated operator by operator in float64
region     what loops and branches mean
inputs     random and edge inputs, in the ranges (`ranges`) that their readers demand (`demands`)
samples    inputs that the caller gave
agree      an artifact beside the reference
foresee    what drawn inputs will show, by the reference alone
rounding   what rounding some values to bf16 does to the outputs
bisect     the first node that diverges

May import: `ir`, `ops`, `measure`. Must not depend on: how code is generated.
"""
