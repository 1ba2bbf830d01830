"""The idle suite: DataDesigner's cases on Headgate's scheduling loop, with metrics, checks, a baseline and a page."""

__all__: list[str] = []
