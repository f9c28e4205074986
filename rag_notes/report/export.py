"""A run in formats of other programs: Parquet, Inspect's log, and a Workflow Run RO-Crate of several runs."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from rag_notes.events import Counts
from rag_notes.extras import needed
from rag_notes.llm.store import canonical_json
from rag_notes.running.records import RecordError, Run, Sample
from rag_notes.running.run_files import samples_of
from rag_notes.types import InputError

_PROFILE = "https://w3id.org/ro/wfrun/process/0.5"
_FORMS = {".jsonl": "application/jsonl", ".xz": "application/x-xz"}
_TEXTS = ("dataset", "model", "method", "question_id", "type", "question", "answer", "error", "trace")


def write_parquet(run: Run, out: Path) -> Path:
    """Write a row for each sample of a run; docs/reviewer.md has the schema.

    Raises InputError where `pyarrow` is not installed.
    """
    pa, parquet = needed("pyarrow", "parquet"), needed("pyarrow.parquet", "parquet")
    types = {name: pa.string() for name in _TEXTS} | {"repeat": pa.int64(), "gold": pa.list_(pa.string())}
    types |= {"metrics": pa.map_(pa.string(), pa.float64()), "seconds": pa.float64()}
    types |= {field.name: pa.int64() for field in fields(Counts)}
    rows = [
        {
            "dataset": run.label,
            "model": run.info.model,
            "repeat": run.info.repeat,
            "method": sample.method,
            "question_id": sample.question.id,
            "type": sample.question.type,
            "question": sample.question.question,
            "gold": sample.gold,
            "answer": sample.answer,
            "error": None if sample.error is None else str(sample.error),
            "metrics": list(sample.metrics.items()),
            "seconds": run.seconds(sample),
            "trace": canonical_json([asdict(event) for event in sample.trace]),
            **asdict(sample.counts),
        }
        for sample in run.samples
    ]
    parquet.write_table(pa.Table.from_pylist(rows, schema=pa.schema(types)), out)
    return out


def write_inspect(run: Run, out: Path) -> list[Path]:
    """Write a log of Inspect for each method, `METHOD.eval`, into a folder: answers, scores, messages of all calls.

    An epoch is a repeat, counted from 1. Raises InputError where `inspect-ai` is not installed.
    """
    log, model = needed("inspect_ai.log", "inspect"), needed("inspect_ai.model", "inspect")
    out.mkdir(parents=True, exist_ok=True)
    info, written = run.info, []
    for method in run.methods:
        samples = run.of(method)
        names = list(dict.fromkeys(name for sample in samples for name in sample.metrics))
        header = log.EvalSpec(
            created=_when(run).isoformat(),
            task=f"rag_notes/{method}",
            task_args=info.methods[method].settings,
            dataset=log.EvalDataset(name=run.label, samples=len(samples), sample_ids=[s.question.id for s in samples]),
            model=f"rag_notes/{info.model}",
            config=log.EvalConfig(epochs=1),
            metadata={"retriever": info.retriever, "llm": info.llm, "prompts": info.prompt_set, "repeat": info.repeat},
        )
        scores = []
        for name in names:
            values = [sample.metrics[name] for sample in samples if name in sample.metrics]
            mean = log.EvalMetric(name="mean", value=sum(values) / len(values))
            scores.append(log.EvalScore(name=name, scorer=name, scored_samples=len(values), metrics={"mean": mean}))
        results = log.EvalResults(
            total_samples=len(samples), completed_samples=sum(s.error is None for s in samples), scores=scores
        )
        made = [_inspect_sample(sample, run, log, model) for sample in samples]
        path = out / f"{method}.eval"
        log.write_eval_log(log.EvalLog(status="success", eval=header, results=results, samples=made), str(path))
        written.append(path)
    return written


def _inspect_sample(sample: Sample, run: Run, log: Any, model: Any) -> Any:
    scorer = needed("inspect_ai.scorer", "inspect")
    messages = [
        message
        for event in sample.trace
        if event.event == "ask"
        for message in (
            model.ChatMessageUser(content=event.prompt, metadata={"stage": event.stage, "key": event.key}),
            model.ChatMessageAssistant(content=event.response or ""),
        )
    ]
    error = sample.error
    return log.EvalSample(
        id=sample.question.id,
        epoch=run.info.repeat + 1,
        input=sample.question.question,
        target=sample.gold,
        messages=messages,
        output=model.ModelOutput.from_content(f"rag_notes/{run.info.model}", sample.answer),
        scores={name: scorer.Score(value=value, answer=sample.answer) for name, value in sample.metrics.items()},
        metadata=asdict(sample.counts) | {"type": sample.question.type},
        error=None
        if error is None
        else log.EvalError(message=str(error), traceback=error.traceback, traceback_ansi=error.traceback),
        total_time=run.seconds(sample),
    )


def write_crate(runs: Mapping[str, Run], out: Path, version: str) -> Path:
    """Write finished runs as a Process Run Crate (Workflow Run RO-Crate): their files, and an action that made each.

    Raises RecordError for a run that is not finished, InputError where `out` is there already or `rocrate` is not
    installed.
    """
    rocrate = needed("rocrate.rocrate", "crate")
    entity = needed("rocrate.model.contextentity", "crate").ContextEntity
    if out.exists():
        raise InputError(f"{out}: is there already; name a folder that is not")
    crate = rocrate.ROCrate()
    crate.name = f"Runs of rag_notes: {', '.join(runs)}"
    crate.description = "Answers of retrieval-augmented generation methods with their traces, scores and settings."
    crate.license = "https://spdx.org/licenses/MIT"
    profile = crate.add(entity(crate, _PROFILE, {"@type": "CreativeWork", "name": "Process Run Crate"}))
    crate.root_dataset["conformsTo"] = profile
    software = {"@type": "SoftwareApplication", "name": "rag_notes", "softwareVersion": version}
    program = crate.add(entity(crate, "#rag_notes", software))
    for name, run in runs.items():
        if not run.info.finished or run.folder is None:
            raise RecordError(f"{name}: the run is not finished: {run.info.status}; finish it with `rag-notes run`")
        files, samples = [], samples_of(run.folder)
        for file, of, form in (
            ("run.json", "settings and provenance", "application/json"),
            (samples.name, "answers, traces and scores", _FORMS[samples.suffix]),
        ):
            properties = {"name": f"{run.label}: {of}", "encodingFormat": form}
            files.append(crate.add_file(run.folder / file, f"{name}/{file}", properties=properties))
        used = [("data set", run.label, run.info.dataset.sha256), ("model", run.info.model, run.info.endpoint)]
        objects = [
            crate.add(entity(crate, f"#{name}-{part.replace(' ', '-')}", _value(part, value, of)))
            for part, value, of in [*used, ("options", " ".join(run.info.overrides), "")]
        ]
        action = {
            "name": f"{', '.join(run.methods)} on {run.label}",
            "endTime": _when(run).isoformat(),
            "actionStatus": "http://schema.org/CompletedActionStatus",
        }
        made = crate.add_action(program, f"#{name}", object=objects, result=files, properties=action)
        crate.root_dataset.append_to("mentions", made)
    crate.write(out)
    return out


def _value(name: str, value: str, of: str) -> dict[str, Any]:
    return {"@type": "PropertyValue", "name": name, "value": value} | ({"description": of} if of else {})


def _when(run: Run) -> datetime:
    """When the run's records were written last; of one that was not written, the beginning of time."""
    seconds = 0.0 if run.folder is None else (run.folder / "run.json").stat().st_mtime
    return datetime.fromtimestamp(seconds, UTC)
