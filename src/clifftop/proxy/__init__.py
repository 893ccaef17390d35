"""The HTTP proxy between an agent and its provider. The only room that knows HTTP."""
