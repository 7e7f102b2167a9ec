"""The training loop, its schedules and its optimisers."""
