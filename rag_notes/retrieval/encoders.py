"""Encoders: what turns queries and passages into vectors, by a model in ONNX or one of sentence-transformers."""

import hashlib
import importlib
import re
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rag_notes.types import InputError, Positive

Vectors = NDArray[np.float32]
_WEIGHTS = ("*.safetensors", "*.bin", "*.json")


class Encoded(NamedTuple):
    """Vectors of texts, float32 of shape (texts, dimensions).

    `truncated` is how many texts were longer than the model reads, `retries` how many requests were sent again.
    """

    vectors: Vectors
    truncated: int = 0
    retries: int = 0


class Encoder(Protocol):
    """Something that maps queries and passages to vectors whose inner product is their similarity."""

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """The vectors of queries, float32 of shape (queries, dimensions), with the query instruction if there is one.

        Warns with `RuntimeWarning` where a query is longer than the model reads.
        """
        ...

    def encode_passages(self, texts: Sequence[str]) -> Encoded:
        """The vectors of passages, in the order given."""
        ...

    def describe(self) -> dict[str, Any]:
        """What determines the vectors, as plain JSON values; `query_instruction` is "" where it is switched off.

        `normalize` is true where all vectors have length 1.
        """
        ...


class OnnxEncoder:
    """A transformer in ONNX on the CPU, by onnxruntime and tokenizers: light, and the default.

    `model` is a folder with `model.onnx` (or `onnx/model.onnx`) and `tokenizer.json`, or the name of a repository on
    the Hugging Face Hub that has them, at `revision`. `pooling` takes the state of the first token, the mean over the
    text's tokens, or, with "none", a model's output that is one vector a text already. `max_length` is in tokens: what
    is longer is cut, and counted. `query_instruction` precedes queries unless `instruct_queries` is false,
    `passage_instruction` passages. `threads=None` uses all cores. Queries are encoded one by one, as padding and the
    company of others change the last bits.

    Raises ImportError without the packages, FileNotFoundError where the model is not there, ValueError where it is not
    such a model, and OSError where the Hub does not give it.
    """

    def __init__(
        self,
        model: str,
        *,
        revision: str | None = None,
        pooling: Literal["cls", "mean", "none"] = "cls",
        normalize: bool = True,
        max_length: Positive = 512,
        query_instruction: str = "",
        instruct_queries: bool = True,
        passage_instruction: str = "",
        threads: Positive | None = None,
    ) -> None:
        onnxruntime = _package("onnxruntime", "onnxruntime tokenizers faiss-cpu", "dense")
        tokenizers = _package("tokenizers", "onnxruntime tokenizers faiss-cpu", "dense")
        folder = Path(model).expanduser()
        if not folder.is_dir():
            folder = _from_hub(model, revision, ["tokenizer.json", "model.onnx*", "onnx/model.onnx*"])
        weights = next(
            (path for path in (folder / "model.onnx", folder / "onnx" / "model.onnx") if path.exists()), None
        )
        if weights is None or not (folder / "tokenizer.json").exists():
            raise FileNotFoundError(
                f"{folder.absolute()}: an ONNX encoder needs model.onnx (or onnx/model.onnx) and tokenizer.json"
            )
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        try:
            self._session = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
            self._tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # both packages raise their own classes, tokenizers a bare Exception
            raise InputError(f"{folder}: onnxruntime or tokenizers cannot read the model ({error})") from None
        self._tokenizer.no_padding()
        self._tokenizer.no_truncation()
        self._tokenizer.enable_truncation(max_length)
        self._inputs = [entry.name for entry in self._session.get_inputs()]
        if unknown := set(self._inputs) - {"input_ids", "attention_mask", "token_type_ids"}:
            raise InputError(f"{weights}: the model wants {sorted(unknown)}, which is no input of an encoder of text")
        rank = len(self._session.get_outputs()[0].shape)
        if rank != (2 if pooling == "none" else 3):
            raise InputError(
                f"{weights}: the first output has {rank} axes, which does not fit pooling={pooling}: it takes "
                "(texts, tokens, dimensions) for cls and mean, (texts, dimensions) for none"
            )
        self._pooling, self._normalize = pooling, normalize
        self._query_instruction = query_instruction if instruct_queries else ""
        self._passage_instruction = passage_instruction
        self._description = {
            "encoder": "onnx",
            "model": folder.name if Path(model).expanduser().is_dir() else model.rpartition("/")[2],
            "sha256": {path.name: file_checksum(path) for path in _with_data(weights, folder / "tokenizer.json")},
            "pooling": pooling,
            "normalize": normalize,
            "max_length": max_length,
            "passage_instruction": passage_instruction,
            "query_instruction": self._query_instruction,
        }

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """As `Encoder.encode_queries`."""
        encoded = [self._encode([self._query_instruction + query]) for query in queries]
        for query, (_, truncated, _) in zip(queries, encoded, strict=True):
            if truncated:
                _warn_truncated(query, self._description["max_length"])
        return np.concatenate([vectors for vectors, _, _ in encoded])

    def encode_passages(self, texts: Sequence[str]) -> Encoded:
        """As `Encoder.encode_passages`."""
        return self._encode([self._passage_instruction + text for text in texts])

    def describe(self) -> dict[str, Any]:
        """As `Encoder.describe`: the files by their checksums, whatever folder they lie in."""
        return dict(self._description)

    def _encode(self, texts: list[str]) -> Encoded:
        encodings = self._tokenizer.encode_batch(texts)
        length = max(len(encoding.ids) for encoding in encodings)
        given = {name: np.zeros((len(texts), length), dtype=np.int64) for name in self._inputs}
        mask = given.setdefault("attention_mask", np.zeros((len(texts), length), dtype=np.int64))
        for row, encoding in enumerate(encodings):
            given["input_ids"][row, : len(encoding.ids)] = encoding.ids
            mask[row, : len(encoding.ids)] = 1
        (states, *_) = self._session.run(None, {name: given[name] for name in self._inputs})
        if self._pooling == "cls":
            states = states[:, 0]
        elif self._pooling == "mean":
            states = (states * mask[:, :, None]).sum(axis=1) / mask.sum(axis=1, keepdims=True)
        vectors = np.asarray(states, dtype=np.float32)
        truncated = sum(bool(encoding.overflowing) for encoding in encodings)
        return Encoded(unit(vectors) if self._normalize else vectors, truncated)


class SentenceTransformersEncoder:
    """Any model that sentence-transformers loads, by folder or by name on the Hub: GTR-T5, GPUs, all others.

    Pooling and projection are the model's own. `device=None` takes a GPU where there is one. `max_length=None` leaves
    the model's own length, in tokens. `query_model` is another model for queries, as DPR has one, without a revision of
    its own. The other settings are those of `OnnxEncoder`.

    Raises ImportError without the package, ValueError where the model cannot be loaded.
    """

    def __init__(
        self,
        model: str,
        *,
        query_model: str | None = None,
        revision: str | None = None,
        device: str | None = None,
        normalize: bool = True,
        max_length: Positive | None = None,
        query_instruction: str = "",
        instruct_queries: bool = True,
        passage_instruction: str = "",
    ) -> None:
        package = _package("sentence_transformers", "sentence-transformers", "sentence-transformers")
        folder = Path(model).expanduser()
        self._model = _load(package, model, revision, device, max_length)
        self._query_model = (
            self._model if query_model is None else _load(package, query_model, None, device, max_length)
        )
        self._lock = threading.Lock()  # a fast tokenizer raises where two threads use it at once
        self._normalize = normalize
        self._query_instruction = query_instruction if instruct_queries else ""
        self._passage_instruction = passage_instruction
        self._description = {
            "encoder": "sentence-transformers",
            "model": folder.name if folder.is_dir() else model.rpartition("/")[2],
            **({} if query_model is None else {"query_model": query_model.rstrip("/").rpartition("/")[2]}),
            **({"sha256": _folder_checksum(folder)} if folder.is_dir() else {"revision": self._revision(revision)}),
            "pooling": "the model's own",
            "normalize": normalize,
            "max_length": self._model.max_seq_length,
            "passage_instruction": passage_instruction,
            "query_instruction": self._query_instruction,
        }

    def encode_queries(self, queries: Sequence[str]) -> Vectors:
        """As `Encoder.encode_queries`."""
        vectors = []
        for query in queries:
            encoded = self._encode([self._query_instruction + query], self._query_model)
            if encoded.truncated:
                _warn_truncated(query, self._description["max_length"])
            vectors.append(encoded.vectors)
        return np.concatenate(vectors)

    def encode_passages(self, texts: Sequence[str]) -> Encoded:
        """As `Encoder.encode_passages`."""
        return self._encode([self._passage_instruction + text for text in texts], self._model)

    def describe(self) -> dict[str, Any]:
        """As `Encoder.describe`: the Hub's commit, or a checksum of the folder's weights and settings."""
        return dict(self._description)

    def _encode(self, texts: list[str], model: Any) -> Encoded:
        with self._lock:
            vectors = model.encode(
                texts, batch_size=len(texts), convert_to_numpy=True, show_progress_bar=False, normalize_embeddings=False
            )
            lengths = [len(ids) for ids in model.tokenizer(texts, truncation=False, verbose=False)["input_ids"]]
        vectors = np.asarray(vectors, dtype=np.float32)
        limit = model.max_seq_length
        truncated = 0 if limit is None else sum(length > limit for length in lengths)
        return Encoded(unit(vectors) if self._normalize else vectors, truncated)

    def _revision(self, asked: str | None) -> str | None:
        config = getattr(getattr(self._model[0], "auto_model", None), "config", None)
        return getattr(config, "_commit_hash", None) or asked


def _load(package: Any, model: str, revision: str | None, device: str | None, max_length: int | None) -> Any:
    folder = Path(model).expanduser()
    try:
        loaded = package.SentenceTransformer(
            str(folder) if folder.is_dir() else model, revision=revision, device=device
        )
    except Exception as error:  # the Hub's, torch's and transformers' classes have nothing in common
        raise InputError(
            f"{model}: sentence-transformers cannot load it ({error}); offline, give a folder that holds it"
        ) from None
    if max_length is not None:
        loaded.max_seq_length = max_length
    return loaded


def file_checksum(path: Path) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def unit(vectors: Vectors) -> Vectors:
    """Return each vector over its length; one of length 0 stays as it is."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return np.asarray(vectors / np.where(lengths == 0, 1, lengths), dtype=np.float32)


def _warn_truncated(query: str, limit: Any) -> None:
    text = f"a query is longer than the {limit} tokens that the model reads; its end is not used: {query[:80]!r}..."
    warnings.warn(text, RuntimeWarning, stacklevel=3)


def _package(module: str, packages: str, extra: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        line = f'pip install "rag-notes[{extra}]" (or: pip install {packages})'
        raise ImportError(f"this retriever needs the package {module}: {line}") from error


def _from_hub(name: str, revision: str | None, patterns: list[str]) -> Path:
    files = "put model.onnx and tokenizer.json in a folder and give its path"
    tried = Path(name).expanduser().absolute()
    if not re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", name):
        raise FileNotFoundError(f"{tried}: no such folder, and no name on the Hub (owner/name); {files}")
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ImportError(
            f"{tried}: no such folder. To download {name} from the Hugging Face Hub: pip install huggingface_hub. "
            f"Without a network: {files}"
        ) from error
    try:
        return Path(hub.snapshot_download(name, revision=revision, allow_patterns=patterns))
    except Exception as error:  # the client's classes differ from version to version
        raise OSError(f"{tried}: no such folder, and the Hub gives no {name} ({error}). Offline: {files}") from None


def _with_data(weights: Path, tokenizer: Path) -> list[Path]:
    """The files of a model: weights above 2 GB lie in files of their own beside it."""
    return [*sorted(weights.parent.glob("model.onnx*")), tokenizer]


def _folder_checksum(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in sorted(path for pattern in _WEIGHTS for path in folder.rglob(pattern)):
        digest.update(f"{path.relative_to(folder).as_posix()} {file_checksum(path)}\n".encode())
    return digest.hexdigest()
