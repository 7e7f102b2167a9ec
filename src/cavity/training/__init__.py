"""The loop, its schedules and its optimisers."""
