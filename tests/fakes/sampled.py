"""One batch of four rows by two completions, sampled for a world's run."""

from controller.runs.config.schedule_policy import schedule_policy
from controller.runs.context import RunContext
from controller.runs.holding import Holding
from controller.runs.manifest import Manifest
from controller.runs.plan_records import PlanRecords
from controller.runs.rounds import Rounds, sample_rounds
from controller.runs.sampling import publish_prompts, sample_batch
from controller.scheduling.plan import plan_evenly
from shared.contracts.call import BatchKey
from shared.contracts.policy import BlobRef, ModelRef, PolicyRef
from shared.contracts.rollout import Sampling
from shared.contracts.stage import Purpose
from tests.fakes.world import RUN, World, prompts_of

BATCH = BatchKey(run=RUN, purpose=Purpose.TRAIN, step=0)
PROMPTS = prompts_of("train", 4)
ROWS = tuple(prompt.row_uid for prompt in PROMPTS)
SAMPLING = Sampling(temperature=1.0, max_tokens=20, eos_token_ids=(99,))
POLICY = PolicyRef(
    version=0, model=ModelRef(path="/models/tiny"), weights=BlobRef(id="r/0/w", num_bytes=1, sha256="a" * 64)
)


async def sample(world: World, num_actors: int = 2) -> RunContext:
    """Sample the batch; who owns the run now."""
    run = await world.context()
    plan = plan_evenly(ROWS, group_size=2, resources=run.resources, num_actors=num_actors)
    prompts = await publish_prompts(run, BATCH, PROMPTS)
    await sample_batch(run, BATCH, plan, prompts, POLICY, SAMPLING)
    return run


async def sampled_rounds(run: RunContext, head: Manifest) -> Rounds:
    """The rounds of the head's step, by an owner who has just begun."""
    return await sample_rounds(run, head, PlanRecords(run, head.step, schedule_policy(run.config)), Holding(run))
