"""The whole config of a run."""

from controller.runs.config.actor import ActorConfig
from controller.runs.config.algorithm import RunAlgorithmConfig
from controller.runs.config.data import DataConfig
from controller.runs.config.model import ModelConfig
from controller.runs.config.platform import PlatformConfig
from controller.runs.config.reward import RewardConfig
from controller.runs.config.rollout import RolloutConfig
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
    reward: RewardConfig = RewardConfig()
    trainer: TrainerConfig = TrainerConfig()
    platform: PlatformConfig = PlatformConfig()

    @property
    def data_seed(self) -> int:
        """Seed of the data order."""
        return self.trainer.seed if self.data.seed is None else self.data.seed

    @property
    def mini_batch_size(self) -> int:
        """Prompts per optimizer update."""
        mini = self.actor.ppo_mini_batch_size
        return self.data.train_batch_size if mini is None else mini

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
