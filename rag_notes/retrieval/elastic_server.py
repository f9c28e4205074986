"""The connection to an Elasticsearch server or cluster: its version, what is sent again, and what its errors mean."""

import base64
import os
import time
from collections.abc import Callable, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import elasticsearch
from elastic_transport import ConnectionError as NoConnectionError
from elastic_transport import ConnectionTimeout, TlsError, TransportError
from elasticsearch import ApiError, AuthenticationException, AuthorizationException, Elasticsearch

from rag_notes.retrieval.base import RetrieverError
from rag_notes.types import InputError

Item = TypeVar("Item")
Answer = TypeVar("Answer")

_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 10.0  # seconds before something is sent again, doubled each time


class RefusedError(RetrieverError):
    """What the server refused, with its reason; `status` is that of HTTP."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Server:
    """An Elasticsearch server or cluster, reached through any of `hosts`.

    What fails for the moment (a node that is gone, 429, 5xx) is sent again, to the next host, up to `max_retries` times
    with growing pauses, and counted in `retries`. Key, user and password are read from the environment variables named;
    they are in no error. Threads may share it. Raises `ValueError` for settings that cannot be.
    """

    def __init__(
        self,
        hosts: Sequence[str],
        *,
        api_key_variable: str = "ELASTICSEARCH_API_KEY",
        user_variable: str = "ELASTICSEARCH_USER",
        password_variable: str = "ELASTICSEARCH_PASSWORD",
        ca_file: str | None = None,
        timeout: float = 60.0,
        max_retries: int = 8,
    ) -> None:
        _check_hosts(hosts)
        if ca_file is not None and not Path(ca_file).is_file():
            tried = Path(ca_file).absolute()
            raise InputError(f"retriever.ca_file={tried}: no such file; name the CA certificate of the server, PEM")
        if ca_file is not None and (plain := [host for host in hosts if not host.startswith("https://")]):
            raise InputError(f"retriever.ca_file is for https, and retriever.hosts has {plain[0]}")
        key, user, password = (os.environ.get(name) for name in (api_key_variable, user_variable, password_variable))
        if bool(user) != bool(password):
            raise InputError(f"set both environment variables {user_variable} and {password_variable}, or neither")
        if key and user:
            raise InputError(f"both {api_key_variable} and {user_variable} are set; unset the one that is not meant")
        self.where = ", ".join(hosts)
        self.retries = 0
        self._who = f"the API key in {api_key_variable}" if key else f"the user and password in {user_variable}"
        self._who += f" and {password_variable}" if user else ""
        if not (key or user):
            self._who = f"a request without a key: set {api_key_variable}, or {user_variable} and {password_variable}"
        self._secrets = [secret for secret in (key, password) if secret]
        self._secrets += [base64.b64encode(text.encode()).decode() for text in (f"{user}:{password}",) if user]
        self._max_retries = max_retries
        self._before_contact = len(hosts) - 1
        self._contact = False
        # Not its own retries: it neither counts them nor sees what failed inside an answer to a batch.
        self._client = Elasticsearch(
            list(hosts),
            api_key=key or None,
            basic_auth=(user, password) if user and password else None,
            request_timeout=timeout,
            max_retries=0,
            **({} if ca_file is None else {"ca_certs": str(Path(ca_file).resolve())}),  # type: ignore[arg-type]
        )

    def versions(self) -> str:
        """The version of the nodes, several in order where they differ.

        Raises `RetrieverError` where a node's major version is not that of the client installed here.
        """
        # Plain `GET /` is not everywhere, and a server of another major refuses the client's usual Accept header.
        headers = {"accept": "*/*"}
        answer = self.call(
            lambda client: client.perform_request("GET", "/_nodes?filter_path=nodes.*.version", headers=headers).body
        )
        try:
            versions = sorted({str(node["version"]) for node in answer["nodes"].values()})
        except (TypeError, LookupError, AttributeError):
            raise RetrieverError(f"{self.where} answers, but not as Elasticsearch does: {str(answer)[:200]}") from None
        ours = metadata.version("elasticsearch")
        if other := [version for version in versions if version.split(".")[0] != ours.split(".")[0]]:
            raise RetrieverError(
                f"the Elasticsearch server at {self.where} is version {other[0]}, the client installed here is {ours}; "
                f"both need the same major version: use a server of version {ours.split('.')[0]}"
            )
        return ", ".join(versions)

    def call(self, request: Callable[[Elasticsearch], Answer]) -> Answer:
        """The answer to one request. Raises `RetrieverError`, and `RefusedError` where the server refuses it."""
        answers: list[Answer] = []

        def send(client: Elasticsearch, _: Sequence[None]) -> tuple[list[None], str]:
            answers.append(request(client))
            return [], ""

        self.send_all([None], send)
        return answers[0]

    def send_all(
        self, items: Sequence[Item], send: Callable[[Elasticsearch, Sequence[Item]], tuple[list[Item], str]]
    ) -> None:
        """Call `send` with all items, then with those it returns as failed for the moment (and why), till none is left.

        Raises as `call`, and `RetrieverError` where some fail `max_retries` times more.
        """
        pause = _FIRST_PAUSE
        attempt = 0
        while True:
            failed: Sequence[Item] = items
            allowed = self._max_retries
            try:
                failed, why = send(self._client, items)
                self._contact = True
            except TlsError as error:
                raise RetrieverError(
                    self._redact(
                        f"{self.where}: the server's certificate is not trusted ({error}); name the file of its CA "
                        "with retriever.ca_file"
                    )
                ) from None
            except (NoConnectionError, ConnectionTimeout) as error:
                why = f"{type(error).__name__}: {error.message}"
                if not self._contact:  # a wrong address is said at once, but another host may be up
                    allowed = self._before_contact
            except ApiError as error:
                self._contact = True
                if not is_momentary(error.status_code):
                    raise self._explain(error) from None
                why = f"status {error.status_code}: {reason_of(error.body)}"
            except TransportError as error:  # an answer that is not JSON, or no header of Elasticsearch
                raise RetrieverError(self._redact(f"{self.where} does not answer as Elasticsearch: {error}")) from None
            if not failed:
                return
            if attempt == allowed:
                raise RetrieverError(self._redact(self._gave_up(attempt, why)))
            attempt += 1
            self.retries += len(failed)
            items = failed
            if self._contact:
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _gave_up(self, attempts: int, why: str) -> str:
        if not self._contact:
            return f"nobody answers at {self.where} ({why}); is the Elasticsearch server running? See retriever.hosts"
        return (
            f"Elasticsearch at {self.where} failed {attempts + 1} times in a row ({why}); the same command continues "
            "once it is well again"
        )

    def _explain(self, error: ApiError) -> RetrieverError:
        reason = self._redact(reason_of(error.body) or str(error.message))
        match error:
            case elasticsearch.UnsupportedProductError():
                return RetrieverError(f"{self.where} is not Elasticsearch: {reason}")
            case AuthenticationException():
                return RefusedError(f"{self.where} refused {self._who} ({reason})", error.status_code)
            case AuthorizationException():
                return RefusedError(
                    f"{self.where} does not allow this to {self._who} ({reason}); searching needs the privileges "
                    "`monitor` of the cluster and `read` and `view_index_metadata` of the index, indexing `manage` and "
                    "`create_doc`, too",
                    error.status_code,
                )
        return RefusedError(f"Elasticsearch at {self.where} refused it: {reason}", error.status_code)

    def _redact(self, text: str) -> str:
        for secret in self._secrets:
            text = text.replace(secret, "[secret]")
        return text[:1000]


def is_momentary(status: int) -> bool:
    """Whether a status of HTTP means that the same request may succeed later: too many of them, a node in trouble."""
    return status == 429 or status >= 500


def reason_of(body: Any) -> str:
    """The server's reasons in an error body or in the error of one item of a batch, without repetition."""
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return str(error)
    causes = [*error.get("root_cause", []), error, error.get("caused_by", {})]
    reasons = [str(cause["reason"]) for cause in causes if cause.get("reason")]
    said = [reason for reason in dict.fromkeys(reasons) if not any(reason in other != reason for other in reasons)]
    return "; ".join(said) or str(error.get("type", "no reason given"))


def _check_hosts(hosts: Sequence[str]) -> None:
    if not hosts:
        raise InputError("retriever.hosts is empty; name at least one, for example http://127.0.0.1:9200")
    for number, host in enumerate(hosts):
        if "@" in host:
            raise InputError(
                f"retriever.hosts[{number}] has a user or password in it; they belong in environment variables, see "
                "retriever.user_variable and retriever.password_variable"
            )
        try:
            parts = urlsplit(host)
            complete = parts.scheme in ("http", "https") and parts.hostname and parts.port
        except ValueError:  # a port that is no number
            complete = False
        if not complete:
            raise InputError(f"retriever.hosts[{number}] is {host!r}; expected for example http://127.0.0.1:9200")
