"""How control messages and tensors become bytes: JSON and safetensors."""
