"""How a conversation looks on the wire: bytes to views and spans, plans to bytes."""
