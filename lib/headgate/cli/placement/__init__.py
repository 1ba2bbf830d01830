"""`headgate placement`: running work on a Ray cluster by priority, and looking after it."""
