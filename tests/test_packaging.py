"""The files that say what to install agree with each other, and the commands of the README exist."""

import json
import re
import stat
import subprocess
import sys
import tomllib
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.elastic import VERSION

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
BUILD = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["build-system"]["requires"]
UNLOCKED = {
    "ray",  # wants another version of cloudpickle than joblib
    "sentence-transformers",  # brings torch in the build for the machine that it is installed on
    "slurm",  # for clusters
    "train",  # brings torch, too; locked apart, for `make training`
}
LINES: list[str] = [
    *PROJECT["dependencies"],
    *(line for name, extra in PROJECT["optional-dependencies"].items() if name not in UNLOCKED for line in extra),
]
LOCKS = ("requirements.lock", "tests/training.lock")
TARGETS = ("help", "reproduce", "check", "test", "training", "bench", "torture", "lock")


@cache
def locked(name: str) -> dict[str, list[Requirement]]:
    """The entries of a lock by the names of their packages; each must have one version and hashes."""
    names: dict[str, list[Requirement]] = {}
    text = re.sub(r"^ *#.*\n?", "", (ROOT / name).read_text("utf-8"), flags=re.MULTILINE)
    for entry in text.replace("\\\n", " ").splitlines():
        line, *hashes = entry.split(" --hash=sha256:")
        assert hashes and all(re.fullmatch(r"[0-9a-f]{64} *", digest) for digest in hashes), entry
        requirement = Requirement(line.strip())
        assert re.fullmatch(r"==[\w.!+-]+", str(requirement.specifier)) and requirement.url is None, entry
        names.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return names


def assert_allowed(line: str, names: dict[str, list[Requirement]]) -> None:
    requirement = Requirement(line)
    for entry in names[canonicalize_name(requirement.name)]:
        (pin,) = entry.specifier
        assert requirement.specifier.contains(pin.version, prereleases=True), entry


def test_every_requirement_is_locked_at_a_version_that_it_allows_and_training_at_the_same() -> None:
    lock, apart = map(locked, LOCKS)
    for line in [*LINES, *BUILD, "editables"]:
        assert_allowed(line, lock)
    for line in [*PROJECT["dependencies"], *PROJECT["optional-dependencies"]["train"]]:
        assert_allowed(line, apart)
    for name in apart.keys() & lock.keys():
        assert {str(entry.specifier) for entry in apart[name]} <= {str(entry.specifier) for entry in lock[name]}, name


def test_the_lock_is_closed_under_dependencies() -> None:
    """What any installed package of the lock needs here is in the lock, at a version that it allows."""
    todo, seen = [Requirement(line) for line in LINES], set[tuple[str, str]]()
    while todo:
        requirement = todo.pop()
        name = canonicalize_name(requirement.name)
        entries = [entry for entry in locked(LOCKS[0]).get(name, []) if entry.marker is None or entry.marker.evaluate()]
        assert len(entries) == 1, f"{requirement}: {len(entries)} entries of the lock apply here"
        assert_allowed(str(requirement), {name: entries})
        with suppress(PackageNotFoundError):
            needs = [Requirement(need) for need in distribution(name).requires or []]
            for extra in {"", *requirement.extras} - {extra for other, extra in seen if other == name}:
                seen.add((name, extra))
                todo += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]


def test_conda_and_the_dev_container_ask_for_the_same() -> None:
    *conda, pip = yaml.safe_load((ROOT / "environment.yml").read_text("utf-8"))["dependencies"]
    version = PROJECT["requires-python"].removeprefix(">=")
    assert (conda, pip) == ([f"python={version}", "pip"], {"pip": [*LINES, "-e ."]})
    container = json.loads((ROOT / ".devcontainer" / "devcontainer.json").read_text("utf-8"))
    assert container["image"].rpartition(":")[2] == version
    make, target = container["postCreateCommand"].split()
    assert make == "make" and f"\n{target}:" in (ROOT / "Makefile").read_text("utf-8")


def test_the_makefile_has_its_targets_and_no_file_the_address_of_an_index() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    for name in ("pyproject.toml", "environment.yml", *LOCKS, "Makefile", ".pre-commit-config.yaml"):
        assert not re.search(r"://|--(extra-)?index|--find-links|--trusted-host", (ROOT / name).read_text("utf-8"))
    assert tuple(re.findall(r"^([a-z]+):.*## \S", makefile, re.MULTILINE)) == TARGETS
    assert f"\n.PHONY: {' '.join(TARGETS)}\n" in makefile


def test_compose_has_the_servers_on_loopback_alone_and_the_elasticsearch_that_is_tested() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"]
    assert services["elasticsearch"]["image"] == f"docker.elastic.co/elasticsearch/elasticsearch:{VERSION}"
    (client,) = [Requirement(line) for line in LINES if line.startswith("elasticsearch")]
    assert client.specifier.contains(f"{VERSION.partition('.')[0]}.9")  # the same major version as the server's
    assert {name: (service["ports"], service.get("profiles")) for name, service in services.items()} == {
        "elasticsearch": (["127.0.0.1:9200:9200"], None),
        "vllm": (["127.0.0.1:8000:8000"], ["vllm"]),
    }


def test_what_only_some_use_is_not_imported_before() -> None:
    code = "import sys, rag_notes.cli, rag_notes.lab; print(*sys.modules)"
    imported = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT).split()
    assert "rag_notes.cli" in imported
    assert not {"elasticsearch", "faiss", "joblib", "onnxruntime", "ray", "scipy.stats", "submitit"} & set(imported)


def test_the_readme_names_the_commands_and_links_every_page_of_the_documentation() -> None:
    readme = (ROOT / "README.md").read_text("utf-8")
    assert {"reproduce", "test"} <= set(re.findall(r"\bmake ([a-z]+)", readme))
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages == {"using", "extending", "reviewing", "operating", "papers", "results", "training"}
    assert set(re.findall(r"\(docs/([a-z]+)\.md", readme)) == pages


def test_ci_is_executable_and_pre_commit_runs_local_tools_only() -> None:
    assert (ROOT / ".ci" / "run").stat().st_mode & stat.S_IXUSR
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text("utf-8"))["repos"]
    assert repository["repo"] == "local"
    assert {"ruff check", "ruff format --check", "mypy"} < {hook["name"] for hook in repository["hooks"]}
    for hook in repository["hooks"]:
        assert hook["language"] == "system" and hook["entry"].startswith(".venv/bin/")


def test_license_version_and_citation_agree() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert citation["version"] == PROJECT["version"]
    assert citation["license"] == PROJECT["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text("utf-8").startswith("MIT License\n\nCopyright (c) 2026 the rag_notes authors\n")
