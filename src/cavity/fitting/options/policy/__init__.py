"""Every decision that the user leaves open; nothing else tests a method's kind."""
