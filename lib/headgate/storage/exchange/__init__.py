"""Samples out to files and in from files, in the formats of the tools that evaluators use."""

from headgate.storage.exchange.affine_results import Miner
from headgate.storage.exchange.exports import export_samples
from headgate.storage.exchange.formats import EXPORT_FORMATS, IMPORT_FORMATS, ExportFormat, ImportFormat
from headgate.storage.exchange.imports import Imported, import_samples
from headgate.storage.exchange.selection import Chosen, require_named

__all__ = [
    "EXPORT_FORMATS",
    "IMPORT_FORMATS",
    "Chosen",
    "ExportFormat",
    "ImportFormat",
    "Imported",
    "Miner",
    "export_samples",
    "import_samples",
    "require_named",
]
