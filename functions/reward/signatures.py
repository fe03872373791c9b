"""User reward functions by their parameter names: verl's form (one completion) and TRL's (a group).

Imported by the child process that runs user code, so it imports the standard library only.
"""

import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

Form = Literal["per_completion", "per_group"]
"""verl's ``compute_score`` is called for each completion, TRL's function once for a row's completions."""

_VERL = "compute_score(data_source, solution_str, ground_truth, extra_info)"
_TRL = "f(prompts, completions, **columns)"
_TRL_NAMES = frozenset({"prompts", "completions", "completion_ids"})
# What a dict result calls the extracted answer; verl's own functions say "pred".
_ANSWER_NAMES = ("answer", "pred", "extracted_answer")


class Job(TypedDict):
    """One call of the user's function, as it crosses to the child: a row, and those of its completions."""

    prompt: str
    messages: list[dict[str, Any]] | None
    data_source: str
    ground_truth: str | None
    columns: dict[str, Any]
    completions: list[str]
    completion_ids: list[list[int]] | None
    attempts: int
    """How often the function may still be called for it."""


class UserScore(TypedDict):
    """What a user's function said about one completion. A reward of None means: not applicable."""

    reward: float | None
    parts: dict[str, float]
    answer: str | None
    """What it took for the completion's answer, where it says so."""


class UnknownSignature(TypeError):
    """The function takes neither verl's nor TRL's parameters."""


class UnusableRow(Exception):
    """The row can never be scored, whatever the completion and however often it is tried."""


class MissingArgument(UnusableRow, TypeError):
    """The function requires a parameter that the row has no column for."""


class BadResult(ValueError):
    """The function returned something that is not one finite reward for each completion."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Signature:
    """How a user's function is called."""

    form: Form
    is_async: bool
    parameters: frozenset[str]
    required: frozenset[str]
    takes_any: bool
    """It has ``**kwargs``."""

    @property
    def takes_token_ids(self) -> bool:
        """Whether the completions' token ids have to be sent along."""
        return self.form == "per_group" and (self.takes_any or "completion_ids" in self.parameters)


def recognise(function: Callable[..., Any]) -> Signature:
    """The signature of ``function``. Raises UnknownSignature, saying which two forms there are."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        parameters = {}.values()
    by_keyword = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    names = frozenset(p.name for p in by_keyword)
    form: Form
    if "solution_str" in names:
        form = "per_completion"
    elif names & _TRL_NAMES:
        form = "per_group"
    else:
        raise UnknownSignature(f"it has parameters ({', '.join(sorted(names))}); write it as {_VERL} or {_TRL}")
    return Signature(
        form=form,
        # An object of a class with `async def __call__` is no coroutine function itself.
        is_async=inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(type(function).__call__),
        parameters=names,
        required=frozenset(p.name for p in by_keyword if p.default is p.empty),
        takes_any=any(p.kind is p.VAR_KEYWORD for p in parameters),
    )


def call_arguments(signature: Signature, job: Job) -> dict[str, Any]:
    """Keyword arguments of the call for ``job``. Raises MissingArgument."""
    offered = _verl_arguments(job) if signature.form == "per_completion" else _trl_arguments(job)
    missing = signature.required - offered.keys()
    if missing:
        raise MissingArgument(
            f"it requires {', '.join(sorted(missing))}, which neither the row's columns nor the call "
            f"provide; there are {', '.join(sorted(offered))}"
        )
    if signature.takes_any:
        return offered
    return {name: value for name, value in offered.items() if name in signature.parameters}


def _verl_arguments(job: Job) -> dict[str, Any]:
    columns = job["columns"]
    return {
        "data_source": job["data_source"],
        "solution_str": job["completions"][0],
        "ground_truth": job["ground_truth"],
        # verl's data sets carry a column of this name; other rows show all they have.
        "extra_info": columns.get("extra_info", columns),
    }


def _trl_arguments(job: Job) -> dict[str, Any]:
    completions, messages = job["completions"], job["messages"]
    num = len(completions)
    per_row = {"ground_truth": job["ground_truth"], "data_source": job["data_source"], **job["columns"]}
    offered: dict[str, Any] = {name: [value] * num for name, value in per_row.items()}
    if messages is None:
        offered |= {"prompts": [job["prompt"]] * num, "completions": list(completions)}
    else:
        offered |= {
            "prompts": [messages] * num,
            "completions": [[{"role": "assistant", "content": text}] for text in completions],
        }
    if job["completion_ids"] is not None:
        offered["completion_ids"] = job["completion_ids"]
    return offered


def read_result(signature: Signature, result: object, num_completions: int) -> list[UserScore]:
    """One score for each of the ``num_completions`` that were asked for. Raises BadResult."""
    if signature.form == "per_completion":
        return [_read_score(result)]
    if isinstance(result, str | bytes | Mapping) or not hasattr(result, "__len__"):
        raise BadResult(f"it returned {_brief(result)} instead of a list with one reward for each completion")
    rewards = list(result)  # type: ignore[call-overload]  # lists, tuples, arrays and tensors all iterate
    if len(rewards) != num_completions:
        raise BadResult(f"it returned {len(rewards)} rewards for {num_completions} completions")
    return [_read_score(reward) for reward in rewards]


def _read_score(result: object) -> UserScore:
    if not isinstance(result, Mapping):
        return {"reward": None if result is None else _finite(result, "reward"), "parts": {}, "answer": None}
    if "score" not in result:
        raise BadResult(f"it returned a dict without 'score'; it has {', '.join(sorted(map(str, result)))}")
    score = result["score"]
    return {
        "reward": None if score is None else _finite(score, "score"),
        # Entries such as the extracted answer are not numbers, and no parts.
        "parts": {str(name): _finite(part, str(name)) for name, part in result.items() if _is_number(part)},
        "answer": next((result[name] for name in _ANSWER_NAMES if isinstance(result.get(name), str)), None),
    }


def _is_number(value: object) -> bool:
    """Numbers, and the scalars of numpy and torch. A str has no ``__float__``; an array has a length."""
    return hasattr(value, "__float__") and not getattr(value, "shape", ())


def _finite(value: object, name: str) -> float:
    if not _is_number(value):
        raise BadResult(f"its {name} is {_brief(value)}, not a number")
    try:
        number = float(value)  # type: ignore[arg-type]  # checked above: it has __float__
    except (TypeError, ValueError, OverflowError) as error:
        raise BadResult(f"its {name} {_brief(value)} is not a number: {error}") from error
    if not math.isfinite(number):
        raise BadResult(f"its {name} is {number}; a reward has to be finite")
    return number


def _brief(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
