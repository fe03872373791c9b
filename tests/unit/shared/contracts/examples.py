"""One call and one reply of every operation of every stage, as the tests of the wire know them.

``python -m tests.unit.shared.contracts.examples`` rewrites the golden files after an intended change of the wire.
"""

from pathlib import Path
from typing import Any

from shared.contracts.batch import BatchPart
from shared.contracts.call import CallKey, ServedBy, StageCall, StageReply, Timings
from shared.contracts.critic import (
    CriticInit,
    CriticInputs,
    CriticOutputs,
    ValuesInputs,
    ValueUpdateInputs,
)
from shared.contracts.learner import (
    AdvantagesInputs,
    AlgorithmConfig,
    InitInputs,
    KlLoss,
    KlPenalty,
    LearnerInputs,
    LearnerOutputs,
    OptimConfig,
    OverlongBuffer,
    RolloutCorrection,
    UpdateInputs,
)
from shared.contracts.lora import LoraConfig
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.prefill import PrefillInputs, PrefillOutputs, PrefixKvHandle, PrefixKvScope
from shared.contracts.reference import ReferenceInputs, ReferenceOutputs
from shared.contracts.reward import (
    FunctionReward,
    ModelReward,
    PartSummary,
    RegexParameters,
    RemoteReward,
    RewardInputs,
    RewardOutputs,
    RewardPart,
    RuleReward,
    SumReward,
)
from shared.contracts.rollout import DecodeStretch, RolloutInputs, RolloutOutputs, Sampling
from shared.contracts.stage import Purpose, Stage
from shared.contracts.wire import Wire

GOLDEN = Path(__file__).with_name("golden")


def blob(kind: str) -> BlobRef:
    return BlobRef(id=f"run-1/000003/{kind}-0123abcd", num_bytes=1234, sha256="0123456789abcdef" * 4)


MODEL = ModelRef(path="models/tiny")
POLICY = PolicyRef(version=3, model=MODEL, weights=blob("weights"))
ROWS = ("row-0", "row-1")


PART = BatchPart(
    round=1,
    prompts=blob("prompts"),
    row_uids=ROWS,
    scores=(blob("scores"),),
    reference_logprobs=(blob("logprobs"),),
    values=(blob("values"),),
)


def call(
    stage: Stage,
    inputs: Wire,
    *,
    purpose: Purpose = Purpose.TRAIN,
    policy: PolicyRef | None = POLICY,
    operation: str = "main",
) -> Wire:
    return StageCall[type(inputs)](
        key=CallKey(
            run="run-1", purpose=purpose, step=3, round=1, stage=stage, operation=operation, shard=2, segment=1
        ),
        attempt=2,
        fence=7,
        policy=policy,
        deadline_at=1_700_000_000.5,
        threads=2,
        trace_id="trace",
        inputs=inputs,
    )


def reply(stage: Stage, outputs: Wire, *, status: str = "done") -> Wire:
    return StageReply[type(outputs)](
        key=CallKey(run="run-1", purpose=Purpose.TRAIN, step=3, round=1, stage=stage, shard=2, segment=1),
        status=status,
        outputs=outputs,
        metrics={"tokens": 12.0},
        served=ServedBy(
            instance="rollout-00001-abc",
            revision="rollout-00001",
            started_at=1_699_999_000.25,
            ready_at=1_699_999_001.5,
            policy_version=3,
            weights_digest=POLICY.digest,
        ),
        timings=Timings(
            started_at=1_700_000_000.0, ended_at=1_700_000_002.0, queue_s=0.5, load_s=0.25, compute_s=1.5, store_s=0.125
        ),
    )


SAMPLING = Sampling(temperature=1.0, max_tokens=32, eos_token_ids=(1, 2))
OPTIM = OptimConfig(lr=1e-3, total_steps=360)

EXAMPLES: dict[str, Wire] = {
    "prefill_call": call(Stage.PREFILL, PrefillInputs(prompts=blob("prompts"), max_num_prefixes=64)),
    "prefill_reply": reply(
        Stage.PREFILL,
        PrefillOutputs(
            num_prefixes=4,
            num_prefix_tokens=1020,
            computed_tokens=900,
            num_handles=20,
            stored_bytes=4096,
            compute_s=0.5,
            store_s=0.1,
        ),
    ),
    "prefix_kv_handle": PrefixKvHandle(
        scope=PrefixKvScope(
            weights_digest=POLICY.digest,
            tokenizer_fingerprint="t",
            dtype="float32",
            layout="l2-k2-d8-float32",
        ),
        block_hash="h",
        num_tokens=16,
        offset=64,
        blob=blob("kv"),
    ),
    "rollout_call": call(
        Stage.ROLLOUT,
        RolloutInputs(prompts=blob("prompts"), num_samples=8, sampling=SAMPLING, run_seed=11, max_num_sequences=64),
    ),
    "rollout_reply": reply(
        Stage.ROLLOUT,
        RolloutOutputs(
            num_completions=3,
            num_tokens=40,
            num_resumed=1,
            decode=(DecodeStretch(num_steps=20, num_sequences=3.5, context_tokens=120.0, seconds=0.25),),
        ),
        status="continue",
    ),
    "reward_rule_call": call(
        Stage.REWARD,
        RewardInputs(
            prompts=blob("prompts"), row_uids=ROWS, num_samples=8, model=MODEL, reward=RuleReward(name="exact_number")
        ),
        policy=None,
    ),
    "reward_function_call": call(
        Stage.REWARD,
        RewardInputs(
            prompts=blob("prompts"),
            row_uids=ROWS,
            num_samples=8,
            model=MODEL,
            reward=FunctionReward(path="rewards/mine.py", name="compute_score"),
            on_failure="drop_group",
        ),
        policy=None,
    ),
    "reward_sum_call": call(
        Stage.REWARD,
        RewardInputs(
            prompts=blob("prompts"),
            row_uids=ROWS,
            num_samples=8,
            model=MODEL,
            reward=SumReward(
                parts=(
                    RewardPart(
                        name="format",
                        weight=0.5,
                        shaping=True,
                        reward=RuleReward(name="regex", parameters=RegexParameters(pattern=".*")),
                    ),
                    RewardPart(name="style", reward=ModelReward(model=MODEL)),
                    RewardPart(
                        name="judge",
                        reward=RemoteReward(url="https://judge.example", protocol="v2", model="judge", secret="judge"),
                    ),
                )
            ),
        ),
        policy=None,
    ),
    "reward_reply": reply(
        Stage.REWARD,
        RewardOutputs(
            scores=blob("scores"),
            num_scored=8,
            num_dropped_groups=1,
            mean_reward=0.25,
            parts=(PartSummary(name="style", num_scored=6, num_none=2, mean=0.25),),
            flat_rows=("row-1",),
        ),
    ),
    "reference_call": call(
        Stage.REFERENCE,
        ReferenceInputs(prompts=blob("prompts"), row_uids=ROWS, num_samples=8, temperature=1.0),
    ),
    "reference_reply": reply(Stage.REFERENCE, ReferenceOutputs(logprobs=blob("logprobs"))),
    "critic_values_call": call(
        Stage.CRITIC, CriticInputs(operation=ValuesInputs(prompts=blob("prompts"), row_uids=ROWS, num_samples=8))
    ),
    "critic_update_call": call(
        Stage.CRITIC,
        CriticInputs(
            operation=ValueUpdateInputs(
                parts=(PART,),
                num_samples=8,
                returns=blob("returns"),
                state=None,
                optim=OPTIM,
            )
        ),
        operation="update",
    ),
    "critic_init_call": call(
        Stage.CRITIC, CriticInputs(operation=CriticInit(model=MODEL)), purpose=Purpose.INIT, policy=None
    ),
    "critic_reply": reply(Stage.CRITIC, CriticOutputs(values=blob("values"), critic=POLICY, state=blob("state"))),
    "learner_init_call": call(
        Stage.LEARNER, LearnerInputs(operation=InitInputs(model=MODEL)), purpose=Purpose.INIT, policy=None
    ),
    "learner_init_lora_call": call(
        Stage.LEARNER,
        LearnerInputs(
            operation=InitInputs(
                model=MODEL, lora=LoraConfig(rank=8, alpha=16, target_modules=("q_proj", "v_proj"), seed=1)
            )
        ),
        purpose=Purpose.INIT,
        policy=None,
    ),
    "learner_lora_reply": reply(
        Stage.LEARNER,
        LearnerOutputs(
            policy=POLICY.model_copy(update={"adapter": blob("adapter")}),
            state=blob("state"),
            num_updates=1,
            packing_plan=blob("packing-plan"),
        ),
    ),
    "learner_update_call": call(
        Stage.LEARNER,
        LearnerInputs(
            operation=UpdateInputs(
                parts=(PART,),
                num_samples=8,
                state=blob("state"),
                temperature=1.0,
                optim=OPTIM,
                algorithm=AlgorithmConfig(kl_loss=KlLoss(), rollout_correction=RolloutCorrection()),
            )
        ),
    ),
    "learner_advantages_call": call(
        Stage.LEARNER,
        LearnerInputs(
            operation=AdvantagesInputs(
                parts=(PART,),
                num_samples=8,
                temperature=1.0,
                algorithm=AlgorithmConfig(
                    adv_estimator="gae",
                    kl_in_reward=KlPenalty(),
                    overlong_buffer=OverlongBuffer(len=8),
                    max_completion_tokens=32,
                ),
                kl_coef=0.25,
            )
        ),
        operation="advantages",
    ),
    "learner_advantages_reply": reply(Stage.LEARNER, LearnerOutputs(advantages=blob("advantages"))),
    "learner_reply": reply(Stage.LEARNER, LearnerOutputs(policy=POLICY, state=blob("state"), num_updates=1)),
}


def calls() -> list[StageCall[Any]]:
    return [example for example in EXAMPLES.values() if isinstance(example, StageCall)]


if __name__ == "__main__":
    GOLDEN.mkdir(exist_ok=True)
    for name, example in EXAMPLES.items():
        (GOLDEN / f"{name}.json").write_text(example.model_dump_json(indent=2) + "\n")
