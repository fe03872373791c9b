"""Which sections are measured, in which order, and how long each may take. Pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """One section: a module of this package, the model it is measured on, and its bounds."""

    module: str
    shape: str
    device: str
    limit_s: float
    is_small: bool = False
    dtype: str = "bfloat16"
    """Of rollout's weights and of the learner's products."""

    @property
    def name(self) -> str:
        """What the output calls it."""
        return f"{self.module}-{self.shape}" if self.shape else self.module


BUDGET_S = 460.0
"""Of the whole check, so that it ends within eight minutes."""

SECTIONS = (
    Section(module="machine", shape="", device="cuda", limit_s=40),
    Section(module="generation", shape="0.5b", device="cuda", limit_s=80),
    Section(module="learner", shape="0.5b", device="cuda", limit_s=60),
    Section(module="publishing", shape="0.5b", device="cuda", limit_s=40),
    Section(module="prefix_kv", shape="7b", device="cuda", limit_s=50),
    Section(module="determinism", shape="0.5b", device="cuda", limit_s=50),
    Section(module="generation", shape="7b", device="cuda", limit_s=120),
    Section(module="learner", shape="7b", device="cuda", limit_s=110),
    Section(module="publishing", shape="7b", device="cuda", limit_s=100),
)
"""The most telling ones first: what the budget does not reach is left out, and said so."""

SMALL_LIMIT_S = 60.0


def small_sections(dtype: str) -> tuple[Section, ...]:
    """Every module once, on a tiny model and the CPU."""
    modules = dict.fromkeys(section.module for section in SECTIONS)
    return tuple(
        Section(
            module=module,
            shape="" if module == "machine" else "tiny",
            device="cpu",
            limit_s=SMALL_LIMIT_S,
            is_small=True,
            dtype=dtype,
        )
        for module in modules
    )


def allowed_s(section: Section, *, elapsed_s: float, budget_s: float = BUDGET_S) -> float:
    """Seconds that a section may take when so many have passed; 0 if it is not worth starting."""
    left = budget_s - elapsed_s
    return min(section.limit_s, left) if left >= min(section.limit_s, 20.0) else 0.0
