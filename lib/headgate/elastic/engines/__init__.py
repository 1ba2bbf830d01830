"""Engines: one API over SGLang, vLLM, Ray actors, and the workers of an SGLang gateway."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
