"""O3: orthogonal adapters, switched on by a detector of forget prompts."""
