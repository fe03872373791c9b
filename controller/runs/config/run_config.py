"""The whole config of a run."""

from controller.runs.config.actor import ActorConfig
from controller.runs.config.algorithm import RunAlgorithmConfig
from controller.runs.config.critic import CriticConfig
from controller.runs.config.data import DataConfig
from controller.runs.config.model import ModelConfig
from controller.runs.config.platform import PlatformConfig
from controller.runs.config.reference import ReferenceConfig
from controller.runs.config.reward import RewardConfig
from controller.runs.config.rollout import RolloutConfig
from controller.runs.config.schedule_section import ScheduleConfig
from controller.runs.config.section import Section
from controller.runs.config.trainer import TrainerConfig


class RunConfig(Section):
    """Everything that a run is asked to do, under verl's names.

    Made by ``load.load_config``, which also holds the rules between keys.
    """

    model: ModelConfig
    data: DataConfig
    actor: ActorConfig = ActorConfig()
    rollout: RolloutConfig = RolloutConfig()
    algorithm: RunAlgorithmConfig = RunAlgorithmConfig()
    reference: ReferenceConfig = ReferenceConfig()
    critic: CriticConfig = CriticConfig()
    reward: RewardConfig = RewardConfig()
    trainer: TrainerConfig = TrainerConfig()
    platform: PlatformConfig = PlatformConfig()
    schedule: ScheduleConfig = ScheduleConfig()

    @property
    def data_seed(self) -> int:
        """Seed of the data order."""
        return self.trainer.seed if self.data.seed is None else self.data.seed

    @property
    def mini_batch_size(self) -> int:
        """Prompts per optimizer update."""
        mini = self.actor.ppo_mini_batch_size
        return self.data.train_batch_size if mini is None else mini

    @property
    def sequence_tokens(self) -> int:
        """Tokens of the longest prompt with the longest completion."""
        return self.data.max_prompt_length + self.data.max_response_length

    @property
    def uses_critic(self) -> bool:
        """Whether advantages need values."""
        return self.algorithm.adv_estimator == "gae"

    @property
    def uses_reference(self) -> bool:
        """Whether a KL term, in the loss or in the reward, needs reference logprobs."""
        return self.actor.use_kl_loss or self.algorithm.use_kl_in_reward

    @property
    def initial_kl_coef(self) -> float | None:
        """Coefficient of the KL penalty at the first step; ``None`` without one."""
        return self.algorithm.kl_ctrl.kl_coef if self.algorithm.use_kl_in_reward else None

    @property
    def reference_max_token_len(self) -> int:
        """Tokens of one forward pass of the reference."""
        return self.reference.log_prob_max_token_len_per_gpu or 2 * self.actor.ppo_max_token_len_per_gpu

    @property
    def values_max_token_len(self) -> int:
        """Tokens of one forward pass of the critic that says values: nothing is kept for a backward pass."""
        return 2 * (self.critic.ppo_max_token_len_per_gpu or self.actor.ppo_max_token_len_per_gpu)

    def total_steps(self, num_rows: int) -> int:
        """Steps of the run on ``num_rows`` training rows.

        A batch runs over the end of an epoch, so an epoch needs no whole number of batches; the last batch is filled
        from the epoch after the last, so that no row of the asked epochs is left out.
        """
        limits = []
        if self.trainer.total_training_steps is not None:
            limits.append(self.trainer.total_training_steps)
        if self.trainer.total_epochs is not None:
            limits.append(-(-self.trainer.total_epochs * num_rows // self.data.train_batch_size))
        return min(limits)
