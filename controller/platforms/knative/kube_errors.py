"""What the Kubernetes API answers instead of an object, by what can be done about it."""


class KubeError(Exception):
    """The API server gave no object. The message says why."""


class KubeUnavailable(KubeError):
    """No answer, or none but "later", in all the attempts that were made."""


class NotPermitted(KubeError):
    """The controller's account may not do this (403): its Role, a policy or a quota is against it."""

    def __init__(self, verb: str, resource: str, namespace: str, said: str) -> None:
        super().__init__(
            f"the controller's account may not {verb} {resource} in namespace {namespace}: add the verb to its Role, "
            f"if it is that (the API server says: {said})"
        )
        self.verb = verb
        self.resource = resource


class NotAuthenticated(KubeError):
    """The API server does not know who asks (401)."""


class ObjectUnknown(KubeError):
    """There is no object of this name (404)."""


class Conflict(KubeError):
    """The object has changed since it was read (409): read it again."""


class Rejected(KubeError):
    """The API server, or a webhook, refuses the content (400, 422)."""


class WatchExpired(KubeError):
    """The point from which a watch should go on is forgotten (410): list again."""
