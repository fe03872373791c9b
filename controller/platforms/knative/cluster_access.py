"""Which way to the Kubernetes API the settings name."""

from controller.platforms.knative.access import AccessInvalid, KubeAccess, in_cluster
from controller.platforms.knative.credentials import CredentialsUnreadable
from controller.platforms.knative.kubeconfig import from_kubeconfig
from controller.settings import ClusterSettings


def find_access(settings: ClusterSettings) -> KubeAccess:
    """A kubeconfig where one is named, else the pod's service account. Raises ``AccessInvalid``."""
    try:
        if settings.kubeconfig is not None:
            return from_kubeconfig(settings.kubeconfig, namespace=settings.namespace)
        if settings.api_host is None:
            raise AccessInvalid("this is no pod of a cluster: set KUBECONFIG to a kubeconfig of the cluster")
        return in_cluster(host=settings.api_host, port=settings.api_port, namespace=settings.namespace)
    except CredentialsUnreadable as error:
        raise AccessInvalid(str(error)) from error
