"""Whether computing the same again gives the same bits, with the flags that ask for it.

The learner makes one update twice from equal weights, with deterministic algorithms; the engine generates twice.
CUDA needs CUBLAS_WORKSPACE_CONFIG for it, which scripts.gpu_check.main sets for this section.
"""

import hashlib

import torch

from functions.learner.config import LearnerConfig
from functions.learner.update import update_policy
from functions.rollout.torch_engine.engine import TorchEngine
from scripts.benchmarks.learner_update import made_rows
from scripts.gpu_check.engine_work import drawn_prompts, run_engine
from scripts.gpu_check.figures import Figures
from scripts.gpu_check.plan import Section
from scripts.gpu_check.random_model import model_folder, random_model
from scripts.gpu_check.shapes import SHAPES, SMALL_WORK, Work
from shared.contracts.training_pass import TrainingPass
from shared.modeling.weights import state_dict_to_blob
from shared.training.optimizer import build_optimizer

WORK = Work(num_prompts=4, group_size=4, prompt_tokens=128, completion_tokens=64)


def measure(section: Section, figures: Figures) -> None:
    """Do both twice."""
    shape, device = SHAPES[section.shape], torch.device(section.device)
    work, dtype = SMALL_WORK if section.is_small else WORK, getattr(torch, section.dtype)
    prompts = drawn_prompts(shape, work)
    with model_folder(shape) as folder:
        blob = state_dict_to_blob(random_model(folder, dtype, device))
        engine = TorchEngine.for_model(folder, dtype, device)
        engine.load(blob)
        runs = [
            {(seq.row_uid, seq.sample): (seq.token_ids, seq.logprobs) for seq in engine_run}
            for engine_run in (run_engine(engine, prompts, work, work.completion_tokens) for _ in range(2))
        ]
        changed = sum(runs[0][id] != runs[1][id] for id in runs[0])
        figures.add(num_completions=work.num_completions)
        figures.check("completions that differ when generated again", changed, at_most=0)
        del engine
        before = torch.are_deterministic_algorithms_enabled()
        torch.use_deterministic_algorithms(True)
        try:
            digests = set()
            for _ in range(2):
                model = random_model(folder, torch.float32, device)
                config = LearnerConfig(lr=1e-3, compute=TrainingPass(dtype=section.dtype))
                rows = made_rows(work.num_prompts, work.group_size, work.prompt_tokens, work.completion_tokens)
                update_policy(model, build_optimizer(model, config), rows, config, 0)
                digests.add(hashlib.sha256(state_dict_to_blob(model)).hexdigest())
        finally:
            torch.use_deterministic_algorithms(before)
    figures.check("digests of one update beyond the first", len(digests) - 1, at_most=0)
