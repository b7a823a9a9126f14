"""The examples of deploy/ for several machines match the real settings and Ray's schema."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from agent_server.engines.openai import SESSION_HEADER
from agent_server.ray.command import ENVIRONMENT
from tests.docs.reference import ROOT, all_variables
from tests.docs.test_deploy import GLOBAL, terrarium

DEPLOY = ROOT / "deploy"
FILES = sorted(DEPLOY.rglob("*.yaml"))
KUBERAY, SERVE = DEPLOY / "ray" / "kuberay.yaml", DEPLOY / "ray" / "serve.yaml"
TOKENS = {"RAY_AUTH_TOKEN_PATH"}
SECRETS = re.compile(r"--from-literal=(\w+)=")


def documents(path: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(path.read_text(encoding="utf-8")))


def nested(value: object) -> Iterator[Mapping[str, Any]]:
    """Yield every mapping in a document, at any depth."""
    if isinstance(value, dict):
        yield value
        value = list(value.values())
    for each in value if isinstance(value, list) else ():
        yield from nested(each)


def environment(path: Path) -> dict[str, str]:
    """Return the environment variables that an example sets: in containers, config maps, or an
    environment file."""
    if path.suffix == ".env":
        return dict(re.findall(r"^(\w+)=(.*)$", path.read_text(encoding="utf-8"), re.M))
    found: dict[str, str] = {}
    for document in documents(path):
        if document.get("kind") == "ConfigMap":
            found |= document["data"]
        for part in nested(document):
            for entry in part.get("env") or ():
                found[entry["name"]] = entry["value"]
    return found


def serve_configs() -> list[dict[str, Any]]:
    (service,) = (each for each in documents(KUBERAY) if each["kind"] == "RayService")
    return [*documents(SERVE), yaml.safe_load(service["spec"]["serveConfigV2"])]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_example_is_yaml_without_an_empty_document(path: Path) -> None:
    assert all(isinstance(document, dict) for document in documents(path))


@pytest.mark.parametrize("path", [*FILES, DEPLOY / "ray" / "node.env"], ids=lambda path: path.name)
def test_every_variable_of_an_example_is_a_setting_or_one_of_rays(path: Path) -> None:
    secrets = set(SECRETS.findall(path.read_text(encoding="utf-8")))
    known = all_variables() | GLOBAL | ENVIRONMENT.keys() | TOKENS
    assert {*environment(path), *secrets} <= known


@pytest.mark.parametrize(
    "path",
    [KUBERAY, DEPLOY / "llm-d.yaml", DEPLOY / "ray" / "node.env"],
    ids=lambda path: path.name,
)
@pytest.mark.process
def test_the_values_of_an_example_fit(path: Path) -> None:
    known = all_variables() | GLOBAL
    ours = {key: value for key, value in environment(path).items() if key in known}
    assert ours
    done = terrarium("config", "check", SERVER_ADMIN_KEY="secret", **ours)
    assert done.returncode == 0, done.stderr


def test_kuberay_adds_workers_of_a_known_size_which_keep_their_models() -> None:
    service, *others = documents(KUBERAY)
    cluster = service["spec"]["rayClusterConfig"]
    assert cluster["enableInTreeAutoscaling"] is True
    (workers,) = cluster["workerGroupSpecs"]
    assert workers["maxReplicas"] == int(environment(KUBERAY)["RAY_MAX_ENGINES"])
    pod = workers["template"]["spec"]
    (container,) = pod["containers"]
    cpus = workers["rayStartParams"]["num-cpus"]
    assert container["resources"]["limits"]["cpu"] == cpus == environment(KUBERAY)["MODEL_THREADS"]
    assert container["volumeMounts"][0]["mountPath"] == environment(KUBERAY)["MODEL_CACHE_DIR"]
    (volume,) = pod["volumes"]
    claims = [each["metadata"]["name"] for each in others if "Claim" in each["kind"]]
    assert claims == [volume["persistentVolumeClaim"]["claimName"]]


def test_every_node_gets_the_variables_that_we_set_where_we_start_ray() -> None:
    for name, value in ENVIRONMENT.items():
        assert environment(DEPLOY / "ray" / "node.env")[name] == value
        if not name.startswith(
            ("RAY_AUTH", "RAY_SERVE_LOG")
        ):  # KubeRay sets RAY_AUTH itself; Kubernetes needs the log on stderr
            assert environment(KUBERAY)[name] == value


@pytest.mark.server  # Ray's import looks for a free port
def test_ray_serve_takes_the_configurations_and_the_application_their_arguments() -> None:
    schema = pytest.importorskip("ray.serve.schema")
    app = pytest.importorskip("agent_server.ray.app")
    for config in serve_configs():
        (application,) = schema.ServeDeploySchema.model_validate(config).applications
        assert application.import_path == f"{app.__name__}:{app.app.__name__}"
        assert set(application.args) <= set(app.Arguments.model_fields)


def test_the_router_of_production_stack_reads_our_header_and_its_engines_our_priority() -> None:
    (values,) = documents(DEPLOY / "vllm-production-stack.yaml")
    assert values["routerSpec"] == {"routingLogic": "session", "sessionKey": SESSION_HEADER}
    for model in values["servingEngineSpec"]["modelSpec"]:
        assert "--scheduling-policy=priority" in model["vllmConfig"]["extraArgs"]
