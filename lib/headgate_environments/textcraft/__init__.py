"""TextCraft: items crafted by recipes."""
