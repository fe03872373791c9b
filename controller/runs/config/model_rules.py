"""Keys of the critic, the reference and the adapter: refused where there is none, for they would have no effect."""

from collections.abc import Iterator

from pydantic import BaseModel

from controller.runs.config.critic import CriticConfig
from controller.runs.config.model import ModelConfig
from controller.runs.config.reference import ReferenceConfig
from controller.runs.config.rule import Broken, Rule


def _critic_key(name: str, default: object) -> Rule:
    def check(value: object, adv_estimator: str) -> Broken | None:
        if adv_estimator == "gae" or value == default:
            return None
        return Broken(
            f"{adv_estimator} has no critic: it compares completions with each other",
            "leave the section out, or set algorithm.adv_estimator to gae",
        )

    return Rule((name, "algorithm.adv_estimator"), check, is_idle=True)


def _reference_key(name: str, default: object) -> Rule:
    def check(value: object, in_loss: bool, in_reward: bool) -> Broken | None:
        if in_loss or in_reward or value == default:
            return None
        return Broken(
            "there is no KL term that would ask the reference",
            "leave the section out, or set actor.use_kl_loss or algorithm.use_kl_in_reward to true",
        )

    return Rule((name, "actor.use_kl_loss", "algorithm.use_kl_in_reward"), check, is_idle=True)


def _defaults(section: BaseModel, prefix: str) -> Iterator[tuple[str, object]]:
    for name, value in section:
        if isinstance(value, BaseModel):
            yield from _defaults(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


def _lora_key(name: str) -> Rule:
    default = ModelConfig.model_fields[name].default

    def check(value: object, rank: int) -> Broken | None:
        if rank > 0 or value == default:
            return None
        return Broken("there is no adapter: all weights are trained", "leave it out, or set model.lora_rank")

    return Rule((f"model.{name}", "model.lora_rank"), check, is_idle=True)


MODEL_RULES: tuple[Rule, ...] = (
    *(_critic_key(name, default) for name, default in _defaults(CriticConfig(), "critic.")),
    _lora_key("lora_alpha"),
    _lora_key("target_modules"),
    *(_reference_key(name, default) for name, default in _defaults(ReferenceConfig(), "reference.")),
)
