"""The functions as processes on this machine, from the same Knative Service manifests and with Knative's semantics."""
