"""affine"""
