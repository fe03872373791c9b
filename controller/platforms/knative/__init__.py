"""The platform port on a cluster: functions are Knative Services, reached by plain HTTP and the Kubernetes API."""
