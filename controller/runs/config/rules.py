"""What must hold between keys. Each rule is a pure function of the values it names.

A rule's first key is the one that is blamed. A rule is asked only when all its keys are valid by themselves.
"""

from controller.runs.config.algorithm_rules import ALGORITHM_RULES
from controller.runs.config.heldout_rules import HELDOUT_RULES
from controller.runs.config.model_rules import MODEL_RULES
from controller.runs.config.reward import RewardPartConfig
from controller.runs.config.rule import Broken, Rule
from controller.runs.config.schedule_rules import SCHEDULE_RULES


def training_samples(temperature: float) -> Broken | None:
    """At temperature 0 every completion of a group is the same, and its logprob has no gradient."""
    if temperature <= 0:
        return Broken(
            f"training needs samples, and at temperature {temperature:g} there is only one",
            "use 1.0; greedy decoding is for rollout.val_kwargs.temperature",
        )
    return None


def whole_mini_batches(mini: int | None, batch: int) -> Broken | None:
    """Every update of a step sees the same number of prompts."""
    if mini is None or (mini <= batch and batch % mini == 0):
        return None
    below = max(size for size in range(1, min(mini, batch) + 1) if batch % size == 0)
    return Broken(
        f"{mini} prompts per update do not divide data.train_batch_size, {batch}",
        f"use {below}, or leave it out for one update per pass",
    )


def sequence_fits(budget: int | None, prompt: int, completion: int) -> Broken | None:
    """A micro-batch holds at least one whole sequence."""
    if budget is not None and budget < prompt + completion:
        return Broken(
            f"one sequence may have {prompt + completion} tokens"
            f" (data.max_prompt_length {prompt} + data.max_response_length {completion})",
            f"use at least {prompt + completion}",
        )
    return None


def order_is_drawn(seed: int | None, shuffle: bool, val_split: float | None, run_seed: int) -> Broken | None:
    """A seed of the data decides something. That of the run says nothing new, be it said twice."""
    if seed is None or shuffle or val_split is not None or seed == run_seed:
        return None
    return Broken("it has no effect while data.shuffle is false", "set data.shuffle to true, or leave it out")


def completion_may_end(min_tokens: int, completion: int) -> Broken | None:
    """The least length is below the most."""
    if min_tokens > completion:
        return Broken(
            f"completions have at most {completion} tokens (data.max_response_length)",
            f"use at most {completion}, or raise data.max_response_length",
        )
    return None


def turns_have_a_tool(tool: str | None, enable: bool) -> Broken | None:
    """Several turns need something that answers between them, and a tool needs several turns."""
    if enable and tool is None:
        return Broken("nothing answers between the turns", "use calculator, or leave out rollout.multi_turn.enable")
    if tool is not None and not enable:
        return Broken("it has no effect on completions of one turn", "set rollout.multi_turn.enable to true")
    return None


def several_turns(max_turns: int | None, enable: bool) -> Broken | None:
    """A number of turns is of use where there are several."""
    if max_turns is not None and not enable:
        return Broken("it has no effect on completions of one turn", "set rollout.multi_turn.enable to true")
    return None


def exact_length(ignore_eos: bool, stop: tuple[str, ...], enable: bool) -> Broken | None:
    """A completion of exactly so many tokens can neither stop nor be answered."""
    if ignore_eos and (stop or enable):
        why = "rollout.stop ends completions" if stop else "rollout.multi_turn inserts answers of any length"
        return Broken(f"{why}, so that their length is not fixed", "leave one of the two out")
    return None


def run_ends(steps: int | None, epochs: int | None) -> Broken | None:
    """A run has a length."""
    if steps is None and epochs is None:
        return Broken("nothing says when the run ends", "give trainer.total_training_steps or trainer.total_epochs")
    return None


def decays(min_lr_ratio: float, schedule: str) -> Broken | None:
    """A floor of the learning rate needs a schedule that falls."""
    if min_lr_ratio > 0 and schedule == "constant":
        return Broken(
            "it has no effect on a constant learning rate",
            "leave it out, or set its lr_scheduler_type to linear or cosine",
        )
    return None


def one_reward(
    rule: str | None, path: str | None, module: str | None, parts: tuple[object, ...] | None
) -> Broken | None:
    """A completion has one source of reward."""
    num_given = sum(form is not None for form in (rule, path, module, parts))
    if num_given != 1:
        given = "several rewards are given" if num_given else "nothing says what a completion is worth"
        return Broken(
            given,
            "give one of reward.rule, reward.custom_reward_function.path or its .module, and reward.parts; several "
            "rewards are added up as reward.parts",
        )
    if rule == "regex":
        return Broken(
            "regex needs a pattern",
            "give it as a part: reward.parts: [{name: format, rule: regex, parameters: {pattern: ...}}]",
        )
    return None


def parts_are_told_apart(parts: tuple[RewardPartConfig, ...] | None) -> Broken | None:
    """Metrics have a name for each part, and dynamic sampling a sign of correctness."""
    names = [part.name for part in parts or ()]
    if len(set(names)) < len(names):
        return Broken("two parts have the same name", "give each its own")
    if parts and all(part.shaping for part in parts):
        return Broken("all parts are shaping, so nothing says what is correct", "leave shaping out of one of them")
    return None


def heldout_rows_once(val_split: float | None, val_files: tuple[str, ...] | None) -> Broken | None:
    """Held-out rows come from one place."""
    if val_split is not None and val_files is not None:
        return Broken("data.val_files has the held-out rows already", "leave one of the two out")
    return None


def evaluation_has_rows(test_freq: int, val_files: tuple[str, ...] | None, val_split: float | None) -> Broken | None:
    """There is something to evaluate on."""
    if test_freq > 0 and val_files is None and val_split is None:
        return Broken(
            "there are no held-out rows to evaluate on", "give data.val_files or data.val_split, or leave it out"
        )
    return None


def best_is_measured(keep: int | None, metric: str | None, test_freq: int, save_freq: int) -> Broken | None:
    """Every checkpoint that competes was evaluated. The last step always is."""
    if keep is None or (metric is not None and not metric.startswith("val-")):
        return None
    if save_freq > 0 and (test_freq < 1 or save_freq % test_freq):
        return Broken(
            f"only some checkpoints would be compared: trainer.save_freq is {save_freq}, trainer.test_freq {test_freq}",
            f"set trainer.test_freq to {save_freq}, or to one of its divisors",
        )
    return None


def best_has_rows(
    keep: int | None, metric: str | None, val_files: tuple[str, ...] | None, val_split: float | None
) -> Broken | None:
    """What checkpoints are compared by is measured at all."""
    has_rows = val_files is not None or val_split is not None
    if keep is not None and not has_rows and (metric is None or metric.startswith("val-")):
        return Broken(
            "checkpoints are compared on held-out rows, and there are none",
            "give data.val_files or data.val_split, or name a metric of training as trainer.best_metric",
        )
    return None


def best_is_asked_for(metric: str | None, mode: str, keep: int | None) -> Broken | None:
    """A comparison has a use."""
    if keep is None and (metric is not None or mode != "max"):
        return Broken("nothing is compared by it", "set trainer.keep_best to how many of the best are to be kept")
    return None


def resumes_somewhere(mode: str, path: str | None, experiment: str | None) -> Broken | None:
    """What the run goes on from is named."""
    if mode == "resume_path" and path is None:
        return Broken("nothing says which checkpoint", "give its folder as trainer.resume_from_path")
    if mode == "auto" and experiment is None:
        return Broken("nothing says whose checkpoints", "give trainer.experiment_name, or leave it out")
    return None


def path_is_followed(path: str | None, mode: str) -> Broken | None:
    """A checkpoint that is named is used."""
    if path is not None and mode != "resume_path":
        return Broken(f"trainer.resume_mode is {mode}", "set trainer.resume_mode to resume_path")
    return None


def evaluation_samples(n: int, temperature: float) -> Broken | None:
    """Several greedy completions of one prompt are one completion, paid several times."""
    if n > 1 and temperature == 0:
        return Broken(
            f"at temperature 0 (rollout.val_kwargs.temperature) all {n} completions are the same",
            "use 1, or set rollout.val_kwargs.temperature above 0",
        )
    return None


RULES: tuple[Rule, ...] = (
    *ALGORITHM_RULES,
    *MODEL_RULES,
    *HELDOUT_RULES,
    *SCHEDULE_RULES,
    Rule(("rollout.temperature",), training_samples),
    Rule(("actor.ppo_mini_batch_size", "data.train_batch_size"), whole_mini_batches),
    Rule(("critic.ppo_mini_batch_size", "data.train_batch_size"), whole_mini_batches),
    *(
        Rule((budget, "data.max_prompt_length", "data.max_response_length"), sequence_fits)
        for budget in (
            "actor.ppo_max_token_len_per_gpu",
            "critic.ppo_max_token_len_per_gpu",
            "reference.log_prob_max_token_len_per_gpu",
        )
    ),
    Rule(("data.seed", "data.shuffle", "data.val_split", "trainer.seed"), order_is_drawn, is_idle=True),
    Rule(("rollout.min_tokens", "data.max_response_length"), completion_may_end),
    Rule(("rollout.multi_turn.tool", "rollout.multi_turn.enable"), turns_have_a_tool),
    Rule(("rollout.multi_turn.max_assistant_turns", "rollout.multi_turn.enable"), several_turns),
    Rule(("rollout.ignore_eos", "rollout.stop", "rollout.multi_turn.enable"), exact_length),
    Rule(("trainer.total_training_steps", "trainer.total_epochs"), run_ends),
    Rule(("actor.optim.min_lr_ratio", "actor.optim.lr_scheduler_type"), decays),
    Rule(("critic.optim.min_lr_ratio", "critic.optim.lr_scheduler_type"), decays),
    Rule(
        (
            "reward.rule",
            "reward.custom_reward_function.path",
            "reward.custom_reward_function.module",
            "reward.parts",
        ),
        one_reward,
    ),
    Rule(("reward.parts",), parts_are_told_apart),
    Rule(("data.val_split", "data.val_files"), heldout_rows_once),
    Rule(("trainer.test_freq", "data.val_files", "data.val_split"), evaluation_has_rows),
    Rule(("rollout.val_kwargs.n", "rollout.val_kwargs.temperature"), evaluation_samples),
    Rule(("trainer.keep_best", "trainer.best_metric", "trainer.test_freq", "trainer.save_freq"), best_is_measured),
    Rule(("trainer.keep_best", "trainer.best_metric", "data.val_files", "data.val_split"), best_has_rows),
    Rule(("trainer.best_metric", "trainer.best_mode", "trainer.keep_best"), best_is_asked_for),
    Rule(("trainer.resume_mode", "trainer.resume_from_path", "trainer.experiment_name"), resumes_somewhere),
    Rule(("trainer.resume_from_path", "trainer.resume_mode"), path_is_followed),
)
