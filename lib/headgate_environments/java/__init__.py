"""java"""
