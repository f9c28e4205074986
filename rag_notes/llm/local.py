"""Serves a GGUF model in this process with llama.cpp, as an OpenAI-compatible endpoint."""

import re
from pathlib import Path
from typing import Any

import httpx2

from rag_notes.extras import needed
from rag_notes.types import InputError


def model_file(name: str) -> Path:
    """The GGUF file of this path, or that of the Hugging Face Hub where it reads hf:OWNER/REPOSITORY/FILE.gguf."""
    path = Path(name).expanduser()
    if hub := re.fullmatch(r"hf:([^/]+/[^/]+)/(.+\.gguf)", name):
        path = Path(needed("huggingface_hub", "local").hf_hub_download(*hub.groups()))
    if not path.is_file() or path.open("rb").read(4) != b"GGUF":
        raise InputError(f"llm.model={name}: no GGUF file; give the path of one, or hf:OWNER/REPOSITORY/FILE.gguf")
    return path


def serve(name: str, *, n_ctx: int = 8192, n_parallel: int = 1, threads: int | None = None) -> Any:
    """A llama.cpp server on 127.0.0.1 and a free port (its `listening_address`), until nothing refers to it.

    `n_parallel` requests share `n_ctx` tokens, others wait. Those computed together change each other's rounding.
    """
    model, xllamacpp = model_file(name), needed("xllamacpp", "local")
    params = xllamacpp.CommonParams()
    params.model.path, params.model_alias = str(model), {model.stem}  # else its path would be in every answer
    params.n_ctx, params.n_parallel, params.sampling.seed = n_ctx, n_parallel, 42  # for requests that bring no seed
    if threads is not None:
        params.cpuparams.n_threads = threads
    params.hostnames, params.port, params.ui, params.verbosity = ["127.0.0.1"], 0, False, 1
    params.cors_origins, params.endpoint_slots = "http://127.0.0.1", False  # no web page may read the answers
    params.fit_params = False  # fail where the context does not fit in memory, rather than serve a shorter one
    params.cache_prompt, params.cache_ram_mib = False, 0  # reusing a prompt's computation changes the rounding
    try:
        server = xllamacpp.Server(params)
    except RuntimeError:
        raise InputError(f"{model}: llama.cpp could not serve it with n_ctx={n_ctx}, see its message above") from None
    body = {"prompt": "a", "max_tokens": 1}  # through llama.cpp's queue: a server stopped before that would hang
    httpx2.post(f"{server.listening_address}/v1/completions", json=body, timeout=None).raise_for_status()
    return server
