"""What processes tell each other: counts and states shared through Redis, and notices of changes."""
