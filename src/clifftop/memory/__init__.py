"""What is remembered of a stream: its last placement, never its text."""
