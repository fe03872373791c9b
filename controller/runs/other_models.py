"""The models that critic and reference start from where they are not the policy's: their folders, and their words."""

from pathlib import Path

from controller.runs.config.problems import ConfigInvalid, ConfigProblem
from controller.runs.config.run_config import RunConfig
from shared.contracts.errors import InvalidInput
from shared.modeling.folder import CONFIG_FILES, TOKENIZER_FILES, model_folder
from shared.modeling.tokenizer import Tokenizer


def other_models(config: RunConfig, tokenizer: Tokenizer) -> dict[str, Path]:
    """Folders by the config's key. Critic and reference are given the policy's token ids, never text, so every token of
    ``tokenizer``, the policy's, has to have the same id with them; a folder without a tokenizer says nothing of it.

    Raises ``ConfigInvalid`` with each that does not fit. Reads files: call it off the event loop.
    """
    named = {"critic.model.path": config.critic.model.path, "reference.model.path": config.reference.model.path}
    folders: dict[str, Path] = {}
    problems: list[ConfigProblem] = []
    for key, path in named.items():
        if path is None:
            continue
        try:
            folders[key] = model_folder(path, CONFIG_FILES + TOKENIZER_FILES)
            reason = _difference(folders[key], tokenizer)
        except InvalidInput as error:
            reason = error.message
        if reason is not None:
            suggestion = "name a model with the policy's tokenizer, or leave it out to start from model.path"
            problems.append(ConfigProblem(field=key, reason=reason, suggestion=suggestion))
    if problems:
        raise ConfigInvalid(problems)
    return folders


def _difference(folder: Path, tokenizer: Tokenizer) -> str | None:
    if not (folder / "tokenizer.json").is_file():
        return None
    there = Tokenizer.load(folder).fast.get_vocab(with_added_tokens=True)
    own = tokenizer.fast.get_vocab(with_added_tokens=True)
    # By id, so that the same two models are refused in the same words.
    moved = [token for token, id in sorted(own.items(), key=lambda item: item[1]) if there.get(token) != id]
    if not moved:
        return None
    first = moved[0]
    return (
        f"its tokenizer is not the policy's: the token {first!r} has id {own[first]} in model.path and "
        f"{there.get(first, 'none')} here; {len(moved)} of {len(own)} differ"
    )
