"""`clifftop demo`: a seeded session, an embedded provider and the real proxy between them."""
