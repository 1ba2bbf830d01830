"""BabyAI: instructions in a grid world described in text."""
