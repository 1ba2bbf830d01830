from .access import Access as Access, Viewer as Viewer
from .app import console_app as console_app
from .asking import RunSource as RunSource
from .pages import Console as Console
from .serving import DEFAULT_PORT as DEFAULT_PORT, serve_console as serve_console
from .sources import Sources as Sources
