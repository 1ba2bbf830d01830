"""BabyAI: instructions in a grid world, told in words."""
