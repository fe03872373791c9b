"""Makes a small Llama that has seen some demonstrations, and stops when one answer in three is right.

    python -m scripts.examples.calculator.make_model [--folder DIR] [--seed N] [--threads N]

It has one token per character and one per tag. What the calculator inserts is in the demonstrations but is not learnt.
"""

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Regex, decoders, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from functions.rollout.engine import Engine, FinishedSequence, SamplingParams, SequenceRequest
from functions.rollout.torch_engine import TorchEngine
from functions.rollout.turns.turn_loop import TurnLoop
from scripts.examples.calculator.products import Product, heldout_products, sample_products
from scripts.examples.calculator.reward import compute_score
from shared.contracts.rollout import MultiTurn
from shared.modeling.logprobs import token_logprobs
from shared.modeling.randomness import address_seed
from shared.modeling.tokenizer import Tokenizer
from shared.modeling.weights import state_dict_to_blob

MODEL = Path(__file__).parent / "model"
TAGS = ("<calc>", "</calc>", "<result>", "</result>")
CHARACTERS = "0123456789+-*/().=# " + "".join(sorted(set("error")))
NUM_DEMONSTRATIONS = 1_000
BATCH_SIZE = 128
LEARNING_RATE = 1e-3
TARGET_ACCURACY = 0.33
STEPS_PER_CHECK = 10
MAX_STEPS = 2_000
MAX_TOKENS = 48


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character of the task, and one per tag."""
    vocab = {token: index for index, token in enumerate(["<pad>", "<eos>", "<unk>", *TAGS, *CHARACTERS])}
    fast = FastTokenizer(WordLevel(vocab, unk_token="<unk>"))
    pieces = "|".join([*map(re.escape, TAGS), r"[\s\S]"])
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(pieces), "isolated")
    fast.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(tokenizer_object=fast, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>")


def make_untrained(folder: Path, *, hidden_size: int = 128, num_layers: int = 3) -> LlamaForCausalLM:
    """Writes the folder of a model without training; 0.65 million parameters unless told otherwise."""
    tokenizer = make_tokenizer()
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=3 * hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    model = LlamaForCausalLM(config)
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)
    return model


def demonstration(tokenizer: Tokenizer, problem: Product) -> tuple[list[int], list[bool]]:
    """Token ids of a problem with its solution, and which of them are to be learnt."""
    token_ids: list[int] = []
    is_learnt: list[bool] = []
    for text, learn in (
        (problem.prompt, False),
        (problem.question, True),
        (problem.result, False),
        (problem.conclusion, True),
    ):
        part = tokenizer.encode(text)
        token_ids += part
        is_learnt += [learn] * len(part)
    return [*token_ids, tokenizer.eos_token_ids[0]], [*is_learnt, True]


def demonstration_batches(tokenizer: Tokenizer, seed: int) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of token ids `[B, T]`, padded on the right, and which of them are to be learnt `[B, T]`."""
    problems = sample_products(NUM_DEMONSTRATIONS, seed=2, excluded=heldout_products())
    pairs = [demonstration(tokenizer, problem) for problem in problems]
    token_ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(ids) for ids, _ in pairs], batch_first=True)
    learnt = torch.nn.utils.rnn.pad_sequence([torch.tensor(mask) for _, mask in pairs], batch_first=True)
    generator = torch.Generator().manual_seed(seed)
    while True:
        for rows in torch.randperm(len(pairs), generator=generator).split(BATCH_SIZE):
            yield token_ids[rows], learnt[rows]


def accuracy(engine: Engine, tokenizer: Tokenizer, problems: Sequence[Product]) -> float:
    """Share of right answers, one sampled at temperature 1 for each problem, with the calculator."""
    loop = TurnLoop.of(MultiTurn(tool="calculator", max_turns=3), tokenizer)
    params = SamplingParams(
        temperature=1.0, max_tokens=MAX_TOKENS, eos_token_ids=tokenizer.eos_token_ids, stop=loop.stop
    )
    answers = {problem.prompt: problem.answer for problem in problems}
    requests = [
        SequenceRequest(
            row_uid=prompt,
            sample=0,
            prompt_token_ids=tuple(tokenizer.encode(prompt)),
            seed=address_seed(0, "eval", 0, 0, prompt, 0),
        )
        for prompt in answers
    ]
    engine.add(requests, params, loop.next_turn)
    finished: list[FinishedSequence] = []
    while engine.num_running:
        finished += engine.step()
    scores = [compute_score("", tokenizer.decode(done.token_ids), answers[done.row_uid]) for done in finished]
    return sum(scores) / len(scores)


def train(model: PreTrainedModel, folder: Path, seed: int) -> float:
    """Supervised training until the target accuracy; returns the accuracy reached."""
    tokenizer, engine, heldout = Tokenizer.load(folder), TorchEngine.for_model(folder), heldout_products()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    for step, (token_ids, learnt) in enumerate(demonstration_batches(tokenizer, seed), 1):
        logits = model(input_ids=token_ids, use_cache=False).logits[:, :-1]
        loss = -token_logprobs(logits, token_ids[:, 1:])[learnt[:, 1:]].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if step % STEPS_PER_CHECK == 0:
            engine.load(state_dict_to_blob(model))
            right = accuracy(engine, tokenizer, heldout)
            print(f"step {step}  loss {loss.item():.3f}  right {right:.3f}", flush=True)
            if right >= TARGET_ACCURACY or step >= MAX_STEPS:
                return right
    raise AssertionError("batches are endless")


def main() -> None:
    """Write the model folder."""
    parser = argparse.ArgumentParser(
        prog="python -m scripts.examples.calculator.make_model", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--folder", type=Path, default=MODEL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    model = make_untrained(options.folder)
    train(model, options.folder, options.seed)
    model.save_pretrained(options.folder)


if __name__ == "__main__":
    main()
