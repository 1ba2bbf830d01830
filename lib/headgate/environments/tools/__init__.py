"""Tools that a model may call within an episode: how calls are written, checked, run in the sandbox and answered."""

from headgate.environments.tools.python_tool import python_tool
from headgate.environments.tools.toolbox import CallProblem, Tool, Toolbox, ToolCall, read_call, tool_call

__all__ = ["CallProblem", "Tool", "ToolCall", "Toolbox", "python_tool", "read_call", "tool_call"]
