"""Serves a GGUF model in this process with llama.cpp, behind the same OpenAI-compatible interface as any other LLM."""

import os
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import httpx2

from rag_notes.llm.client import LLM
from rag_notes.llm.models import fetch_model
from rag_notes.llm.sampling import Sampling, with_sampling
from rag_notes.llm.store import ResponseStore
from rag_notes.types import InputError


class LocalServer:
    """A llama.cpp server on 127.0.0.1 and a free port, alive inside `with` (or between `start` and `close`).

    `n_ctx` is the context in tokens, shared evenly by `n_parallel` slots: a request and its answer together get
    n_ctx / n_parallel tokens, and a longer prompt is refused with status 400. Requests beyond the slots wait their
    turn. `threads=None` uses all cores. `seed` is for requests that bring none. With one slot the same request gets
    the same answer whatever was asked before; with more, requests that are computed together change each other's
    rounding, so that answers may differ from run to run. There is no API key: send any.

    Raises `FileNotFoundError` where the model is not there, `ValueError` on a setting too small, and on `start`
    `ImportError` without xllamacpp and `RuntimeError` where llama.cpp refuses the model.
    """

    def __init__(
        self, model: Path, *, n_ctx: int = 8192, n_parallel: int = 1, threads: int | None = None, seed: int = 42
    ) -> None:
        if not model.is_file():
            raise FileNotFoundError(f"{model.absolute()}: no such model file.")
        threads = threads if threads is not None else os.cpu_count() or 1
        for name, value, least in (
            ("n_parallel", n_parallel, 1),
            ("threads", threads, 1),
            ("n_ctx", n_ctx, n_parallel),
        ):
            if value < least:
                raise InputError(f"{name} must be at least {least}, not {value}.")
        self.model = model
        self.n_ctx = n_ctx
        self.n_parallel = n_parallel
        self.threads = threads
        self.seed = seed
        self._server: Any = None  # llama.cpp stops serving as soon as nothing refers to this

    def start(self) -> Self:
        """Load the model and serve it; returns once it answers."""
        try:
            import xllamacpp  # noqa: PLC0415  (optional, and a large library to load)
        except ImportError as error:
            raise ImportError('A local LLM needs llama.cpp: pip install "rag-notes[local]"') from error
        params = xllamacpp.CommonParams()
        params.model.path = str(self.model)
        params.model_alias = {self.model.stem}  # else its path would be in every answer
        params.n_ctx = self.n_ctx
        params.n_parallel = self.n_parallel
        params.cpuparams.n_threads = self.threads
        params.sampling.seed = self.seed
        params.hostnames = ["127.0.0.1"]
        params.port = 0
        params.cors_origins = "http://127.0.0.1"  # no web page elsewhere may read the answers
        params.ui = False
        params.endpoint_slots = False
        params.verbosity = 1  # errors only
        params.fit_params = False  # fail where the context does not fit in memory, rather than serve a shorter one
        # Reusing the computation of an earlier prompt changes the rounding, and with it the answer.
        params.cache_prompt = False
        params.cache_ram_mib = 0
        try:
            self._server = xllamacpp.Server(params)
        except RuntimeError as error:
            raise RuntimeError(
                f"{self.model}: llama.cpp could not serve it with n_ctx={self.n_ctx}; its own message is on stderr. "
                "Check that the file is whole (fetch_model with sha256) and that memory suffices, or lower n_ctx."
            ) from error
        self._wait()
        return self

    def _wait(self) -> None:
        """Return when a request has gone through llama.cpp's queue: one told to stop before that would hang."""
        body = {"prompt": "a", "max_tokens": 1}
        httpx2.post(f"{self.base_url}/completions", json=body, timeout=None).raise_for_status()

    @property
    def base_url(self) -> str:
        """Address for an OpenAI client, such as http://127.0.0.1:40123/v1; RuntimeError while nothing is served."""
        if self._server is None:
            raise RuntimeError(f"{self.model.name} is not being served: use base_url inside `with LocalServer(...)`.")
        return f"{self._server.listening_address}/v1"

    def close(self) -> None:
        """Stop serving and free the memory; requests under way still get their answer or a closed connection."""
        self._server = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@with_sampling
def local(
    *,
    model: str,
    sampling: Sampling,
    sha256: str | None = None,
    n_ctx: int = 8192,
    n_parallel: int = 1,
    threads: int | None = None,
    store: str = ".cache/responses.sqlite",
    timeout: float = 3600.0,
) -> LLM:
    """A GGUF model served in this process: its path, `hf:owner/repo/file.gguf`, or one of the named models.

    The model is fetched if need be and checked by sha256; `n_parallel` requests are computed together, `timeout` is
    in seconds and includes the wait for a slot. Raises as `fetch_model` and `LocalServer` do.
    """
    path = fetch_model(model, sha256=sha256)
    server = LocalServer(
        path,
        n_ctx=n_ctx,
        n_parallel=n_parallel,
        threads=threads,
        **{} if sampling.seed is None else {"seed": sampling.seed},
    ).start()
    llm = LLM(
        Path(model).stem if model.endswith(".gguf") else model,
        store=ResponseStore(store),
        base_url=server.base_url,
        served_as=path.stem,
        concurrency=n_parallel,
        timeout=timeout,
        sampling=sampling,
    )
    llm.endpoint = "llama.cpp in this process"  # its port is another one every time
    llm.resources.callback(server.close)
    return llm
