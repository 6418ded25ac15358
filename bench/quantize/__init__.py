"""What quantising a model costs in exactness, and what it gains in time.

subjects   models with inputs like those they were trained for, and what they decide
run        signal to noise, agreement and times, as tables
"""
