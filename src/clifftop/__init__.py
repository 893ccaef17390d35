"""clifftop: bound a coding agent's context without a model call (CliffCompaction)."""

__version__ = "0.1.0"
