"""The algorithm, pure: values in, values out. No I/O, clock, randomness, environment or async."""
