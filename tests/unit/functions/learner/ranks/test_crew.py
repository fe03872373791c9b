from functions.learner.ranks.crew import rank_environment
from tests.structure.source_tree import ROOT


def test_ranks_get_no_secret_and_find_the_code() -> None:
    given = {
        "PATH": "/bin",
        "PYTHONPATH": "/elsewhere",
        "NCCL_DEBUG": "INFO",
        "REDIS_URL": "redis://:hunter2@redis",
        "REDIS_PASSWORD": "hunter2",
        "RLHFLESS_TOKEN_FILE": "/token",
    }
    assert rank_environment(given) == {"PATH": "/bin", "NCCL_DEBUG": "INFO", "PYTHONPATH": f"{ROOT}:/elsewhere"}
    assert rank_environment({})["PYTHONPATH"] == str(ROOT)
