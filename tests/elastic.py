"""A real Elasticsearch for tests, from the zip in Maven Central.

The zip is a minimal build without the analyzers `english` and `cjk` and without API keys. A plugin adds them, by the
same classes of Lucene as in a released server. The server refuses to run as root, so root starts it as `nobody`. The
tests run where RAG_NOTES_REQUIRE_ELASTICSEARCH=1 asks for them; they need Maven, a JDK of Java 21 and openssl.
"""

import contextlib
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from elasticsearch import Elasticsearch

VERSION = "9.2.4"
ARTIFACT = f"org.elasticsearch.distribution.integ-test-zip:elasticsearch:{VERSION}:zip"

PLUGIN = Path(__file__).parent / "elastic_plugin" / "Analysis.java"
DESCRIPTOR = f"""name=analysis
description=what the minimal build lacks
version=1
classname=rag_notes.Analysis
java.version=21
elasticsearch.version={VERSION}
"""


class Installation(NamedTuple):
    """The unpacked server, the Java to run it and the user to run it as (None: oneself)."""

    home: Path
    java: Path
    user: str | None


@contextlib.contextmanager
def installation() -> Iterator[Installation]:
    """Fetch the zip, unpack it where another user can read it, and add the plugin."""
    if os.environ.get("RAG_NOTES_REQUIRE_ELASTICSEARCH") != "1":
        pytest.skip("set RAG_NOTES_REQUIRE_ELASTICSEARCH=1 to fetch an Elasticsearch (100 MB) and test with it")
    java, archive = find_java(), fetch()
    # Not pytest's folder, which only its owner can read.
    with tempfile.TemporaryDirectory(prefix="rag-notes-elasticsearch-", ignore_cleanup_errors=True) as folder:
        Path(folder).chmod(0o755)
        with zipfile.ZipFile(archive) as packed:
            packed.extractall(folder)
        home = Path(folder) / f"elasticsearch-{VERSION}"
        plugin = home / "plugins" / "analysis"
        plugin.mkdir()
        with tempfile.TemporaryDirectory() as classes:
            compiled = ["javac", "--release", "21", "-d", classes, "-cp", f"{home}/lib/*", str(PLUGIN)]
            for name, *arguments in (compiled, ["jar", "cf", str(plugin / "analysis.jar"), "-C", classes, "."]):
                subprocess.run([str(java / "bin" / name), *arguments], check=True)
        (plugin / "plugin-descriptor.properties").write_text(DESCRIPTOR)
        yield Installation(home, java, "nobody" if os.geteuid() == 0 else None)


def find_java() -> Path:
    """The folder of a Java compiler of version 21 or later."""
    homes = [Path(os.environ[name]) for name in ("ES_JAVA_HOME", "JAVA_HOME") if os.environ.get(name)]
    for home in (*homes, *sorted(Path("/usr/lib/jvm").glob("*"))):
        with contextlib.suppress(OSError):
            match = re.search(r'^JAVA_VERSION="(\d+)', (home / "release").read_text(encoding="utf-8"), re.MULTILINE)
            if match and int(match[1]) >= 21 and (home / "bin/javac").exists():
                return home
    pytest.fail("Elasticsearch needs a JDK of Java 21 or later: install one, or name its folder in ES_JAVA_HOME")


def fetch() -> Path:
    """The zip in Maven's local repository, fetched by Maven where it is missing."""
    group, name, version, kind = ARTIFACT.split(":")
    path = Path.home() / ".m2/repository" / group.replace(".", "/") / name / version / f"{name}-{version}.{kind}"
    command = ["mvn", "-q", "-B", "dependency:get", f"-Dartifact={ARTIFACT}", "-Dtransitive=false"]
    if not path.exists():
        subprocess.run(command, check=True, timeout=240)
    return path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Node:
    """One node on 127.0.0.1 with its own folders; `files` (name to text) go into its config."""

    def __init__(
        self, installed: Installation, name: str, settings: dict[str, Any], files: dict[str, str] | None = None
    ) -> None:
        self.name, self.port, self._installed = name, free_port(), installed
        self._folder = installed.home.parent / name
        self._process: subprocess.Popen[bytes] | None = None
        shutil.copytree(installed.home / "config", self._folder / "config")
        for part in ("data", "logs", "tmp"):
            (self._folder / part).mkdir()
        defaults = {
            "node.name": name,
            "path.data": str(self._folder / "data"),
            "path.logs": str(self._folder / "logs"),
            "network.host": "127.0.0.1",
            "http.port": self.port,
            "transport.port": free_port(),
            "cluster.routing.allocation.disk.threshold_enabled": False,
        }
        for path, text in ({"elasticsearch.yml": json.dumps(defaults | settings)} | (files or {})).items():
            (self._folder / "config" / path).write_text(text, encoding="utf-8")
        if installed.user:
            for item in (self._folder, *self._folder.rglob("*")):
                shutil.chown(item, installed.user)

    def start(self) -> None:
        """Start it in a session of its own; it stops when its standard input ends, and so when the tests die."""
        quick = "-XX:TieredStopAtLevel=1"  # the quick compiler: the server lives for a minute
        environment = {
            "PATH": os.environ["PATH"],
            "ES_PATH_CONF": str(self._folder / "config"),
            "ES_TMPDIR": str(self._folder / "tmp"),
            "ES_JAVA_HOME": str(self._installed.java),
            "ES_JAVA_OPTS": f"-Xms512m -Xmx512m {quick}",
            "CLI_JAVA_OPTS": quick,
        }
        user = self._installed.user
        options: dict[str, Any] = {"user": user, "group": "nogroup", "extra_groups": []} if user else {}
        script = 'exec 3<&0; (read -r <&3; kill $$) & exec bash "$0" 3<&- < /dev/null'
        self._process = subprocess.Popen(
            ["bash", "-c", script, str(self._installed.home / "bin" / "elasticsearch")],
            stdin=subprocess.PIPE,
            stdout=(self._folder / "out").open("wb"),
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
            **options,
        )

    def wait(self, ready: Callable[[], object]) -> None:
        """Return when `ready` no longer raises OSError. Fails with the log where the process ends meanwhile."""
        assert self._process is not None
        while self._process.poll() is None:  # pytest's own limit ends a wait without end
            with contextlib.suppress(OSError):
                ready()
                return
            time.sleep(0.2)
        log = (self._folder / "out").read_text(encoding="utf-8", errors="replace")
        pytest.fail(f"{self.name} ended: {log[-3000:]}")

    def kill(self) -> None:
        """As a power cut would: all its processes at once."""
        assert self._process is not None
        os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Stop it in good order, if it runs."""
        if self._process is not None and self._process.poll() is None:
            self._process.communicate()


def make_certificate(folder: Path, name: str) -> tuple[Path, Path]:
    """Make a key and a certificate for 127.0.0.1 with openssl, as PEM files."""
    key, certificate = folder / f"{name}.key", folder / f"{name}.pem"
    options = f"-newkey rsa:2048 -nodes -days 2 -subj /CN={name} -addext subjectAltName=IP:127.0.0.1".split()
    command = ["openssl", "req", "-x509", *options, "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(command, capture_output=True, check=True)
    return key, certificate


class Secured(NamedTuple):
    """A single node behind TLS, whose user `admin` may do everything."""

    url: str
    ca_file: str
    admin: tuple[str, str]
    node: Node

    def start(self) -> None:
        """Start the server and return when it answers."""
        self.node.start()
        self.node.wait(lambda: socket.create_connection(("127.0.0.1", self.node.port), timeout=5).close())
        assert self.ask("GET", "/_cluster/health?wait_for_status=yellow&timeout=60s")["timed_out"] is False

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        """The answer to a request of the admin; None for 404."""
        options: dict[str, Any] = {"ca_certs": self.ca_file, "basic_auth": self.admin, "request_timeout": 90}
        with Elasticsearch(self.url, **options) as client:
            headers = {"Accept": "application/json", "Content-Type": "application/json"}
            answer = client.options(ignore_status=404).perform_request(method, path, headers=headers, body=body)
        return None if answer.meta.status == 404 else answer.body

    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.ca_file)


@contextlib.contextmanager
def secured_node() -> Iterator[Secured]:
    """Start and stop the node."""
    with installation() as installed:
        (key, certificate), admin = make_certificate(installed.home.parent, "ca"), ("admin", "correct-horse-1")
        settings = {
            "discovery.type": "single-node",
            "xpack.security.enabled": True,
            "xpack.security.http.ssl": {"enabled": True, "key": key.name, "certificate": certificate.name},
        }
        files = {path.name: path.read_text(encoding="utf-8") for path in (key, certificate)}
        files |= {"users": ":".join(admin) + "\n", "users_roles": "superuser:admin\n"}
        node = Node(installed, "single", settings, files)
        secured = Secured(f"https://127.0.0.1:{node.port}", str(certificate), admin, node)
        try:
            secured.start()
            yield secured
        finally:
            node.stop()
