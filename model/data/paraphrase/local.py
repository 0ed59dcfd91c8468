"""A model of this machine: an encoder and decoder (T5 and its kin), or a causal one.

It is asked for one sentence, so many times over, each drawn from what it finds likely. Every job
has random numbers of its own, so a killed command goes on as if nothing had been.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Sequence
from typing import Any

from model.common.errors import InputError
from model.common.hub import quiet_transformers, require_encoder
from model.data.columnar import first_line
from model.data.paraphrase.answer_file import ModelAnswer
from model.data.paraphrase.answers import tidy
from model.data.paraphrase.asking import Messages, job_seed
from model.data.paraphrase.jobs import ParaphraseJob
from model.data.paraphrase.prompt import Style

TRIES = 3  # for a job that brought no sentence at all
LONGEST = 2  # times the sentence's own tokens, and ROOM more
ROOM = 16
NUCLEUS = 0.95  # of the likely words, those that make up so much of the probability


def local_style(name: str) -> Style:
    """What the model is asked for, by its kind; its weights are not loaded for that."""
    return "seq2seq" if _load("AutoConfig", name).is_encoder_decoder else "sentence"


class LocalAnswers:
    def __init__(
        self,
        name: str,
        messages: Callable[[ParaphraseJob], Messages],
        *,
        seed: int,
        temperature: float,
    ) -> None:
        import torch

        self.messages, self.seed, self.temperature = messages, seed, temperature
        self.style = local_style(name)
        kind = "AutoModelForSeq2SeqLM" if self.style == "seq2seq" else "AutoModelForCausalLM"
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.tokenizer = _load("AutoTokenizer", name)
        # A pickle among the weights' formats would run what is in it.
        dtype = "auto" if self.device.type == "cuda" else torch.float32
        model = _load(kind, name, use_safetensors=True, dtype=dtype)
        self.model = model.to(self.device).eval()

    def __call__(self, jobs: Sequence[ParaphraseJob]) -> Generator[ModelAnswer, None, None]:
        for job in jobs:
            yield self.answer(job)

    def answer(self, job: ParaphraseJob) -> ModelAnswer:
        inputs = self._inputs(self.messages(job))
        longest = LONGEST * len(self.tokenizer(job.sentence)["input_ids"]) + ROOM
        read = written = 0
        for fault in range(TRIES):
            drawn = self._draw(inputs, job.count, longest, job_seed(self.seed, job, fault) or 0)
            read += int(inputs["input_ids"].numel())
            written += int(drawn.numel())
            texts = self.tokenizer.batch_decode(drawn, skip_special_tokens=True)
            found = tuple(sentence for text in texts if (sentence := _first_line(text)))
            if found:
                return ModelAnswer(job.key, found, (read, written))
        return ModelAnswer(job.key, (), (read, written), f"no sentence ({TRIES} tries)")

    def _inputs(self, messages: Messages) -> dict[str, Any]:
        if self.style == "sentence" and getattr(self.tokenizer, "chat_template", None):
            found = self.tokenizer.apply_chat_template(
                messages, add_generation_prompt=True, return_dict=True, return_tensors="pt"
            )
        else:
            text = "\n\n".join(message["content"] for message in messages)
            found = self.tokenizer(text, return_tensors="pt", truncation=True)
        wanted = ("input_ids", "attention_mask")  # T5 knows no token types, for one
        return {name: found[name].to(self.device) for name in wanted}

    def _draw(self, inputs: dict[str, Any], count: int, longest: int, seed: int) -> Any:
        """What was written alone, without what was read."""
        import torch

        devices = [self.device] if self.device.type == "cuda" else []
        padding = self.tokenizer.pad_token_id
        with torch.no_grad(), torch.random.fork_rng(devices=devices), quiet_transformers():
            torch.manual_seed(seed)
            drawn = self.model.generate(
                **inputs,
                do_sample=True,
                temperature=self.temperature,
                top_p=NUCLEUS,
                top_k=0,
                num_return_sequences=count,
                max_new_tokens=longest,
                pad_token_id=self.tokenizer.eos_token_id if padding is None else padding,
            )
        return drawn if self.style == "seq2seq" else drawn[:, inputs["input_ids"].shape[1] :]


def _first_line(text: str) -> str:
    return next((line for part in text.splitlines() if (line := tidy(part))), "")


def _load(kind: str, name: str, **settings: Any) -> Any:
    import transformers

    place = os.path.expanduser(name)
    remedy = "give a folder, a Hub id that this machine can reach, or --base-url for a server"
    try:
        require_encoder(name)
        with quiet_transformers():
            return getattr(transformers, kind).from_pretrained(
                place, trust_remote_code=False, **settings
            )
    except InputError as error:
        raise InputError("--model", error.faults) from None
    except Exception as error:  # a damaged or missing folder makes it fail in many ways
        fault = f"'{name}' cannot be loaded ({first_line(error)}); {remedy}"
        raise InputError("--model", [fault]) from error
