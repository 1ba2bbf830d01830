"""The idle suite: DataDesigner's cases on Headgate's own scheduling loop, their metrics, checks, baseline and page."""

__all__: list[str] = []
