"""babyai"""
