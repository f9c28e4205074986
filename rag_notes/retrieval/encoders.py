"""Encoders turn queries and passages into vectors: by ONNX, by sentence-transformers, or by an endpoint."""

import hashlib
import os
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

import numpy as np
import openai
from numpy.typing import NDArray

from rag_notes.extras import needed
from rag_notes.files import checksum_of
from rag_notes.types import InputError, NonNegative, Passage, Positive

Vectors = NDArray[np.float32]
_WEIGHTS = {".safetensors", ".bin", ".json"}


class Encoder(Protocol):
    """Maps queries and passages to vectors whose inner product is their similarity."""

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """Encode queries, with their instruction, into an array of shape (queries, dimensions)."""

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """Encode passages into an array of shape (passages, dimensions)."""

    def describe(self) -> dict[str, Any]:
        """What determines the vectors, as JSON values; `normalize` is true where all vectors have length 1."""


def passage_text(passage: Passage) -> str:
    """Return what an encoder reads of a passage: title, newline, text."""
    return f"{passage.title}\n{passage.text}" if passage.title else passage.text


def describe_passages(encoder: Encoder) -> dict[str, Any]:
    """What determines the vectors of passages: everything but the instruction of queries."""
    return {name: value for name, value in encoder.describe().items() if name != "query_instruction"}


def encode_in_batches(
    encoder: Encoder, passages: Sequence[Passage], batch_size: int, dtype: str = "float32"
) -> Vectors:
    """Encode passages in batches of similar length, in the order of the passages.

    Raises InputError where the encoder does not give one vector a passage, and where one is not finite in `dtype`.
    """
    texts = [passage_text(passage) for passage in passages]
    order = sorted(range(len(texts)), key=lambda row: -len(texts[row]))
    batches = [order[start : start + batch_size] for start in range(0, len(order), batch_size)]
    arrays = [encoder.encode_passages([texts[row] for row in rows]) for rows in batches]
    if len({array.shape[1] for array in arrays}) != 1 or sum(map(len, arrays)) != len(texts):
        raise InputError(f"the encoder gave {len(texts)} texts arrays of {[array.shape for array in arrays]}")
    with np.errstate(over="ignore"):
        vectors = np.concatenate(arrays)[np.argsort(order)].astype(dtype)
    for row in np.flatnonzero(~np.isfinite(vectors).all(axis=1)):
        raise InputError(f"the vector of passage {passages[int(row)].id!r} is not finite in {dtype}; use another dtype")
    return vectors


@dataclass(kw_only=True, eq=False)
class InstructedEncoder(ABC):
    """What encoders share: a model, vectors of length 1, and instructions before queries (a switch) and passages."""

    model: str = field(kw_only=False)
    normalize: bool = True
    query_instruction: str = ""
    instruct_queries: bool = True
    passage_instruction: str = ""
    described: ClassVar[tuple[str, ...]] = ()  # what else determines the vectors
    batch_queries: ClassVar = False  # in a local model padding and the company of others change the last bits

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """As `Encoder.encode_queries`."""
        texts = [self.describe()["query_instruction"] + query for query in queries]
        batches = [texts] if self.batch_queries else [[text] for text in texts]
        return np.concatenate([self._vectors(batch, queries=True) for batch in batches])

    def encode_passages(self, texts: Sequence[str]) -> Vectors:
        """As `Encoder.encode_passages`. Warns with RuntimeWarning where a text is longer than the model reads."""
        return self._vectors([self.passage_instruction + text for text in texts], queries=False)

    def describe(self) -> dict[str, Any]:
        """As `Encoder.describe`; a local model is described by its files' checksum, not by its folder."""
        kind = {"encoder": type(self).__name__, "model": self.model.rstrip("/").rpartition("/")[2]}
        settings = {name: getattr(self, name) for name in ("normalize", "passage_instruction", *self.described)}
        return kind | settings | {"query_instruction": self.query_instruction if self.instruct_queries else ""}

    def _vectors(self, texts: list[str], *, queries: bool) -> Vectors:
        states, truncated = self._encode(texts, queries=queries)
        if truncated:
            message = f"{truncated} of {len(texts)} texts are longer than the model reads; their ends are not used"
            warnings.warn(message, RuntimeWarning, stacklevel=3)
        vectors = np.asarray(states, dtype=np.float32)
        lengths = np.linalg.norm(vectors, axis=1, keepdims=True) if self.normalize else np.ones(1)
        return np.asarray(vectors / np.where(lengths == 0, 1, lengths), dtype=np.float32)

    @abstractmethod
    def _encode(self, texts: list[str], *, queries: bool) -> tuple[NDArray[Any], int]:
        """Return the vectors, and how many texts were cut."""


@dataclass(kw_only=True, eq=False)
class OnnxEncoder(InstructedEncoder):
    """A transformer in ONNX on the CPU. `model` is a folder with `tokenizer.json` and `model.onnx`, or one on the Hub.

    `pooling` takes the state of the first token, the mean over the text's tokens, or, with "none", an output that is
    one vector a text already. What is longer than `max_length` tokens is cut. `threads=None` uses all cores. Raises
    OSError where the model is not there, and InputError without the packages and for files that do not fit.
    """

    revision: str | None = None
    pooling: Literal["cls", "mean", "none"] = "cls"
    max_length: Positive = 512
    threads: Positive | None = None
    described = ("pooling", "max_length", "sha256")

    def __post_init__(self) -> None:
        runtime, tokenizers = needed("onnxruntime", "dense"), needed("tokenizers", "dense")
        folder = Path(self.model).expanduser()
        folder = folder if folder.is_dir() else _from_hub(self.model, self.revision)
        weights = next((path for path in (folder / "model.onnx", folder / "onnx/model.onnx") if path.exists()), folder)
        options = runtime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 3, self.threads or 0
        try:
            self._session = runtime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # both packages raise their own classes, tokenizers a bare Exception
            parts = "an ONNX encoder needs model.onnx (or onnx/model.onnx) and tokenizer.json"
            raise InputError(f"{folder.absolute()}: {parts} that can be read ({error})") from None
        self._tokenizer.enable_padding()
        self._tokenizer.enable_truncation(self.max_length)
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        if len(self._session.get_outputs()[0].shape) != (2 if self.pooling == "none" else 3):
            raise InputError(f"{weights}: pooling={self.pooling} does not fit the model's output")
        self.sha256 = _checksum([*weights.parent.glob("model.onnx*"), folder / "tokenizer.json"])

    def _encode(self, texts: list[str], *, queries: bool) -> tuple[NDArray[Any], int]:
        encodings = self._tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encodings], dtype=np.int64)
        mask = np.array([encoding.attention_mask for encoding in encodings], dtype=np.int64)
        inputs = {"input_ids": ids, "attention_mask": mask, "token_type_ids": np.zeros_like(ids)}
        (states, *_) = self._session.run(None, {name: inputs[name] for name in self._inputs})
        if self.pooling == "cls":
            states = states[:, 0]
        elif self.pooling == "mean":
            states = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        return states, sum(bool(encoding.overflowing) for encoding in encodings)


@dataclass(kw_only=True, eq=False)
class SentenceTransformersEncoder(InstructedEncoder):
    """Any model that sentence-transformers loads, by folder or by name on the Hub, with its own pooling.

    `query_model` is another model for queries, as DPR has one. `device=None` takes a GPU where there is one.
    `max_length=None`, in tokens, leaves the model's own. Raises ImportError without the package, and InputError where
    the model cannot be loaded.
    """

    query_model: str | None = None
    revision: str | None = None
    device: str | None = None
    max_length: Positive | None = None
    described = ("query_model", "max_length", "version")

    def __post_init__(self) -> None:
        self._lock = threading.Lock()  # a fast tokenizer raises where two threads use it at once
        self._passages = self._load(self.model, self.revision)
        self._queries = self._load(self.query_model, None) if self.query_model else self._passages
        self.max_length = self._passages.max_seq_length
        files = [path for path in Path(self.model).expanduser().rglob("*") if path.suffix in _WEIGHTS]
        config = getattr(getattr(self._passages[0], "auto_model", None), "config", None)
        self.version = _checksum(files) if files else getattr(config, "_commit_hash", None) or self.revision

    def _load(self, name: str, revision: str | None) -> Any:
        package = needed("sentence_transformers", "sentence-transformers")
        try:
            model = package.SentenceTransformer(str(Path(name).expanduser()), revision=revision, device=self.device)
        except Exception as error:  # the Hub's, torch's and transformers' classes have nothing in common
            text = f"sentence-transformers cannot load it ({error}); offline, name a folder that holds it"
            raise InputError(f"{name}: {text}") from None
        model.max_seq_length = self.max_length or model.max_seq_length
        return model

    def _encode(self, texts: list[str], *, queries: bool) -> tuple[NDArray[Any], int]:
        model = self._queries if queries else self._passages
        with self._lock:
            vectors = model.encode(texts, batch_size=len(texts), show_progress_bar=False, normalize_embeddings=False)
            lengths = [len(ids) for ids in model.tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
        return vectors, sum(length > (model.max_seq_length or length) for length in lengths)


@dataclass(kw_only=True, eq=False)
class EndpointEncoder(InstructedEncoder):
    """A model behind an OpenAI-compatible `/embeddings` endpoint; the key is in the environment variable named.

    `batch_size` texts go out in a request, and `dimensions` asks for shorter vectors. What fails for the moment is sent
    again `max_retries` times. A text longer than the model reads is cut or refused there. Raises OSError where the
    endpoint fails, and InputError where OpenAI's own has no key.
    """

    base_url: str = "https://api.openai.com/v1"
    api_key_variable: str = "OPENAI_API_KEY"
    dimensions: Positive | None = None
    batch_size: Positive = 64
    timeout: float = 600.0
    max_retries: NonNegative = 5
    described = ("dimensions",)
    batch_queries = True

    def __post_init__(self) -> None:
        key = os.environ.get(self.api_key_variable)
        if not key and "api.openai.com" in self.base_url:
            raise InputError(f"set the environment variable {self.api_key_variable}, or retriever.encoder.base_url=URL")
        options: dict[str, Any] = {"timeout": self.timeout, "max_retries": self.max_retries}
        self._client = openai.OpenAI(base_url=self.base_url, api_key=key or "none", **options)

    def _encode(self, texts: list[str], *, queries: bool) -> tuple[NDArray[Any], int]:
        options: dict[str, Any] = {"model": self.model, "encoding_format": "float"}
        options |= {"dimensions": self.dimensions} if self.dimensions else {}
        vectors: list[list[float]] = []
        try:
            for start in range(0, len(texts), self.batch_size):
                batch = texts[start : start + self.batch_size]
                items = self._client.embeddings.create(input=batch, **options).data
                indexes: list[Any] = [item.index for item in items]
                rows = list(range(len(items))) if indexes == [None] * len(items) else indexes  # some send no index
                if sorted(rows) != list(range(len(batch))):
                    raise InputError(f"{len(batch)} texts, vectors {rows}")
                vectors += [items[row].embedding for row in np.argsort(rows)]
            return np.asarray(vectors, dtype=np.float32), 0
        except (openai.APIError, ValueError, TypeError, AttributeError) as error:
            kind = f"{type(error).__name__} {getattr(error, 'status_code', '')}".strip()  # the text may repeat the key
            raise OSError(f"{self.base_url} gave no vectors of {self.model!r} ({kind})") from None


def _from_hub(model: str, revision: str | None) -> Path:
    patterns = ["tokenizer.json", "model.onnx*", "onnx/model.onnx*"]
    hub = needed("huggingface_hub", "dense")
    try:
        return Path(hub.snapshot_download(model, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the client's classes differ from version to version
        raise OSError(f"{Path(model).absolute()}: no such folder, and the Hub has no {model} ({error})") from None


def _checksum(files: Iterable[Path]) -> str:
    lines = [f"{path.name} {checksum_of(path)}\n" for path in sorted(files)]
    return hashlib.sha256("".join(lines).encode()).hexdigest()
