"""The built-in tools by the name that a call gives."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from functions.rollout.turns.calculator import Calculator
from functions.rollout.turns.environment import Environment
from shared.contracts.rollout import ToolName

TOOLS: Mapping[ToolName, Callable[[], Environment]] = MappingProxyType({"calculator": Calculator})
