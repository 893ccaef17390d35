"""The `clifftop` command. Parses and prints; the work is done by the rooms below."""
