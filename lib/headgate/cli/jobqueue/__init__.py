"""jobqueue"""
