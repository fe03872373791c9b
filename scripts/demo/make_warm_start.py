"""Makes the demo's model: a small Llama that has seen some demonstrations and stopped at one right answer in three.

    python -m scripts.demo.make_warm_start [--folder DIR] [--seed N] [--threads N]

Reinforcement learning needs a policy that is sometimes right, so the model is first trained on demonstrations, and
stopped at the first check where at least a third of what it samples for the held-out problems is right. The result
depends on rounding, hence on the machine and the number of threads; a rerun gives another model of about the same
accuracy.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch
from tokenizers import Regex, decoders, pre_tokenizers
from tokenizers import Tokenizer as FastTokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedModel, PreTrainedTokenizerFast

from functions.rollout.torch_engine import TorchEngine
from scripts.demo.accuracy import accuracy
from scripts.demo.addition import ALPHABET, Addition, heldout_additions, sample_additions
from shared.modeling.loading import load_model
from shared.modeling.logprobs import token_logprobs
from shared.modeling.tokenizer import Tokenizer
from shared.modeling.weights import state_dict_to_blob

MODEL = Path(__file__).parent / "model"
NUM_DEMONSTRATIONS = 500
BATCH_SIZE = 128
LEARNING_RATE = 1e-3
TARGET_ACCURACY = 0.33
CHECK_BELOW_LOSS = 0.06
STEPS_PER_CHECK = 4
MAX_STEPS = 2_000


def make_tokenizer() -> PreTrainedTokenizerFast:
    """One token per character of the task."""
    vocab = {token: index for index, token in enumerate(["<pad>", "<eos>", "<unk>", *ALPHABET])}
    fast = FastTokenizer(WordLevel(vocab, unk_token="<unk>"))
    fast.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), "isolated")
    fast.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=fast, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>", model_max_length=64
    )


def make_model(tokenizer: PreTrainedTokenizerFast) -> LlamaForCausalLM:
    """The untrained model, 0.65 million parameters."""
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=128,
        intermediate_size=384,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )
    return LlamaForCausalLM(config)


def demonstrations() -> list[Addition]:
    """The problems whose solutions the model is shown; none is held out."""
    return sample_additions(NUM_DEMONSTRATIONS, seed=2, excluded=heldout_additions())


def demonstration_batches(
    tokenizer: Tokenizer, problems: Sequence[Addition], seed: int
) -> Iterator[tuple[Tensor, Tensor]]:
    """Endless batches of token ids `[B, T]`, padded on the right, and which of them are to be learnt `[B, T]`."""
    generator = torch.Generator().manual_seed(seed)
    eos, pad = tokenizer.eos_token_ids[0], tokenizer.pad_token_id
    sequences = [torch.tensor([*tokenizer.encode(problem.prompt + problem.demonstration), eos]) for problem in problems]
    token_ids = torch.nn.utils.rnn.pad_sequence(sequences, batch_first=True, padding_value=pad)
    learnt = token_ids != pad
    learnt[:, : len(tokenizer.encode(problems[0].prompt))] = False
    while True:
        for rows in torch.randperm(len(sequences), generator=generator).split(BATCH_SIZE):
            yield token_ids[rows], learnt[rows]


def train(model: PreTrainedModel, tokenizer: Tokenizer, folder: Path, seed: int) -> float:
    """Supervised training until the target accuracy; returns the accuracy reached."""
    heldout = heldout_additions()
    optimizer = torch.optim.Adam(model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.98))
    engine = TorchEngine.for_model(folder)
    started = time.perf_counter()
    batches = demonstration_batches(tokenizer, demonstrations(), seed)
    for step, (token_ids, learnt) in enumerate(batches, 1):
        logits = model(input_ids=token_ids, use_cache=False).logits[:, :-1]
        loss = -token_logprobs(logits, token_ids[:, 1:])[learnt[:, 1:]].mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if (step % STEPS_PER_CHECK == 0 and loss.item() < CHECK_BELOW_LOSS) or step >= MAX_STEPS:
            engine.load(state_dict_to_blob(model))
            sampled = accuracy(engine, tokenizer, heldout)
            elapsed_s = time.perf_counter() - started
            print(f"step {step}  loss {loss.item():.3f}  sampled {sampled:.3f}  {elapsed_s:.0f} s", flush=True)
            if sampled >= TARGET_ACCURACY or step >= MAX_STEPS:
                return sampled
    raise AssertionError("batches are endless")


def main() -> None:
    """Write the model folder and print its accuracy."""
    parser = argparse.ArgumentParser(prog="python -m scripts.demo.make_warm_start", description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=MODEL)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    fast = make_tokenizer()
    model = make_model(fast)
    fast.save_pretrained(options.folder)
    model.save_pretrained(options.folder)
    tokenizer = Tokenizer.load(options.folder)
    train(model, tokenizer, options.folder, options.seed)
    model.save_pretrained(options.folder)
    engine = TorchEngine(load_model(options.folder))
    sampled = accuracy(engine, tokenizer, heldout_additions(), seed=1)
    greedy = accuracy(engine, tokenizer, heldout_additions(), greedy=True)
    size_mb = (options.folder / "model.safetensors").stat().st_size / 1e6
    print(f"{model.num_parameters()} parameters, {size_mb:.2f} MB; sampled {sampled:.3f}, greedy {greedy:.3f}")


if __name__ == "__main__":
    main()
