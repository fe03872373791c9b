"""Version 0 of a policy: a model's own weights and, with LoRA, an adapter that changes nothing yet."""

from shared.codec.lora_adapter import encode_adapter
from shared.contracts.call import StageCall
from shared.contracts.learner import InitInputs, LearnerInputs
from shared.contracts.policy import PolicyRef
from shared.modeling.device import TORCH_DTYPES
from shared.modeling.loading import load_model
from shared.modeling.threads import use_threads
from shared.modeling.weights import state_dict_to_blob
from shared.service.handler import CallContext
from shared.training.lora import initial_adapter


async def publish_initial(
    call: StageCall[LearnerInputs], inputs: InitInputs, path: str, context: CallContext
) -> PolicyRef:
    """Store version 0 of the model in the folder ``path``.

    Raises ``InvalidTrainingConfig`` for layers that cannot be adapted, and the model's own errors.
    """

    def load() -> tuple[bytes, bytes | None]:
        use_threads(call.threads)
        model = load_model(path)
        weights = state_dict_to_blob(model, None if inputs.dtype == "float32" else TORCH_DTYPES[inputs.dtype])
        return weights, None if inputs.lora is None else encode_adapter(initial_adapter(model, inputs.lora))

    with context.watch.measure("load"):
        weights, adapter = await context.compute(load)
    run, step = call.key.run, call.key.step
    with context.watch.measure("store"):
        ref = await context.blobs.put(run, step, "policy", weights)
        policy = PolicyRef(version=0, model=inputs.model, weights=ref, dtype=inputs.dtype)
        if adapter is None:
            return policy
        return policy.model_copy(update={"adapter": await context.blobs.put(run, step, "policy-adapter", adapter)})
