"""Records as rag_notes 0.1 wrote them, turned into today's form."""

from typing import Any

_RECORDING_MISS = "no recorded response"
_STAGE = "stage "  # before the name of a stage whose model is another one
_ANNOTATIONS = ("evidence", "quest_eval")


def sample_of(old: dict[str, Any]) -> dict[str, Any]:
    """A line of samples.jsonl; the metrics tell the question's task. Raises KeyError naming what is missing."""
    metrics = old["metrics"]
    task = "yes_no" if "yes_no_acc" in metrics else "long_form" if "str_em" in metrics else "short"
    counts = dict(old["counts"])
    counts["parse_failures"] = counts.pop("unreadable")
    error = old["error"]
    return {
        "method": old["method"],
        "question": {
            "id": old["question_id"],
            "question": old["question"],
            "answers": old["gold"],
            "task": task,
            "type": old["type"],
        },
        "answer": old["answer"],
        "error": error and {"kind": "RecordingMissError" if _RECORDING_MISS in error else "", "message": error},
        "metrics": metrics,
        "counts": counts,
        "trace": [{**event, "event": _event_name(event["event"])} for event in old["trace"]],
    }


def info_of(old: dict[str, Any]) -> dict[str, Any]:
    """A run.json. What a run was made under stood in the name of its data set. Raises KeyError as `sample_of`."""
    settings, dataset = old["settings"], dict(old["dataset"])
    noise = settings["retriever"].get("noise_percent")
    annotates = next((kind for kind in _ANNOTATIONS if dataset["name"].endswith(f"-{kind}")), None)
    dataset["name"] = dataset["name"].removesuffix(f"-noise{noise}").removesuffix(f"-{annotates}")
    llm = {name: value for name, value in settings["llm"].items() if not name.startswith(_STAGE)}
    stages = {name.removeprefix(_STAGE): value for name, value in settings["llm"].items() if name.startswith(_STAGE)}
    usage = {name: old.get("usage", {}).get(name, 0) for name in ("prompt_tokens", "completion_tokens", "retries")}
    same = ("status", "samples", "seconds", "search_retries", "half_written", "studies", "endpoint", "versions", "git")
    return {name: old[name] for name in same if name in old} | {
        "dataset": dataset,
        "condition": {"noise_percent": noise, "annotates": annotates},
        "methods": {
            name.removeprefix(f"{annotates}_of_"): {
                "function": method["function"],
                "settings": method["settings"],
                "code": method["source"],
            }
            for name, method in settings["methods"].items()
        },
        "retriever": settings["retriever"],
        "repeat": llm.pop("repeat", 0),
        "llm": llm | ({"stages": stages} if stages else {}),
        "prompt_set": "small",
        "prompts": old["prompts"],
        "usage": usage | {"calls": old.get("usage", {}).get("sent", 0)},
        "overrides": old.get("given", []),
    }


def _event_name(name: str) -> str:
    return "parse_failure" if name == "unreadable" else name
