"""O3: orthogonal adapters, activated by a detector of forget prompts."""
