"""What the task files beside this one take from the bundled chat model's held-out questions."""
import json
from pathlib import Path

from datasets import Dataset

HELD_OUT = Path(__file__).resolve().parents[3] / "models" / "phi3-tiny-chat" / "heldout.jsonl"


def rows():
    """Those of one turn: a system prompt, which asks for a form of the answer, and a question."""
    docs = []
    for line in HELD_OUT.read_text().splitlines():
        row = json.loads(line)
        if [m["role"] for m in row["messages"]] == ["system", "user"]:
            docs.append({"system": row["messages"][0]["content"], "question": row["messages"][1]["content"],
                         "answer": row["answer"]})
    return docs


def questions(**_):
    return {"test": Dataset.from_list(rows())}


def choices(**_):
    """The same, with the answers of three other questions to choose from."""
    docs = rows()
    for i, doc in enumerate(docs):
        wrong = [d["answer"] for d in docs[i + 1:] + docs[:i] if d["answer"] != doc["answer"]]
        doc["choices"] = list(dict.fromkeys(wrong))[:3]
        doc["label"] = i % 4
        doc["choices"].insert(doc["label"], doc["answer"])
    return {"test": Dataset.from_list(docs)}
