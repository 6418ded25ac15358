"""TFLite in int8: files written and read without TensorFlow, its operators and how they round, in numpy."""
