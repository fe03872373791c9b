"""Small tokenizers whose tokens cut text in the ways that real ones do."""

from collections.abc import Sequence

from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import BPE

from shared.modeling.tokenizer import Tokenizer

EOS = "<eos>"


def byte_tokenizer(merges: Sequence[tuple[str, str]] = ()) -> Tokenizer:
    """Single bytes and these merges, as GPT-2's; the first token is the EOS."""
    vocab = [EOS, *sorted(pre_tokenizers.ByteLevel.alphabet()), *(first + second for first, second in merges)]
    fast = FastTokenizer(BPE(vocab={token: id for id, token in enumerate(vocab)}, merges=list(merges)))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    fast.decoder = decoders.ByteLevel()
    return _wrapped(fast)


def letter_tokenizer() -> Tokenizer:
    """A few characters and merges of them: 23 tokens, the third the EOS."""
    vocab = ["a", "b", EOS, *"cdefgh0123<>/=", "ab", "bc", "<0", "0>", "cd", "ef"]
    merges = [("a", "b"), ("b", "c"), ("<", "0"), ("0", ">"), ("c", "d"), ("e", "f")]
    fast = FastTokenizer(BPE(vocab={token: id for id, token in enumerate(vocab)}, merges=merges))
    fast.decoder = decoders.Fuse()
    return _wrapped(fast)


def sentence_piece_tokenizer() -> Tokenizer:
    """Pieces with a mark where a word begins, and bytes for the rest, as Llama's: the text loses its first space."""
    pieces = ["▁", "▁a", "a", "b", "▁b", "ab", "<", "c", "▁<", "c>", ">", "/"]
    vocab = [EOS, *pieces, *(f"<0x{byte:02X}>" for byte in range(256))]
    fast = FastTokenizer(BPE(vocab={token: id for id, token in enumerate(vocab)}, merges=[], byte_fallback=True))
    fast.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return _wrapped(fast)


def _wrapped(fast: FastTokenizer) -> Tokenizer:
    return Tokenizer(
        fast=fast,
        special_tokens={"eos_token": EOS},
        eos_token_ids=(0,),
        pad_token_id=0,
        chat_template=None,
        fingerprint="toy",
    )
