"""textcraft"""
