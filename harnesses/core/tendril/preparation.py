"""Preparation of a turn: the choice of model, the prompt, the context, the trace; pseudonyms."""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date, datetime
from hashlib import blake2b
from pathlib import Path

import structlog

from harnesses.core.tendril.resources import Resources
from harnesses.core.tendril.turn import TurnRequest
from llm.agent.trace import Trace
from llm.client.client import RequestOptions
from llm.client.profile import Profile
from llm.client.token_usage import ANSWER
from llm.log_questions import QuotedAnswer
from llm.memory.room import RoomMemory
from llm.messages.message import PromptSection
from llm.prompt.builder import Persona, Prompt, PromptRequest
from llm.prompt.context_manager import CompactPromptContext, PromptContext, PromptInput
from llm.skills.hint import HintContext
from storage.db.private_files import make_folder
from storage.runs.runs import Run

_KEY_BYTES = 16
_UNRECORDED_KEY = secrets.token_bytes(_KEY_BYTES)
"""The hash key for pseudonyms of unrecorded conversations. Unlike those of `Pseudonyms` it is never
stored, so nobody can link them to a conversation after this process has ended."""

Context = PromptContext | CompactPromptContext

_log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The persona, the options of each model request, and the profile of the model."""

    persona: Persona
    options: RequestOptions
    profile: Profile


async def choose_model(
    resources: Resources, request: TurnRequest, memory: RoomMemory, pseudonyms: Pseudonyms
) -> ModelChoice:
    """Choose the model: that of the request, else that of the persona, else the configured one.

    Names unknown to the server are ignored. A job gets the budget of a large model, because it
    needs all of its material. A small model answers best briefly and at temperature 0, which is the
    default for it; the persona or the configuration can set another temperature.
    """
    persona = resources.configuration.prompts.personas.choose(request.persona)
    agent, resolve = resources.configuration.agent, resources.catalog.resolve
    model = await resolve(request.model) or await resolve(persona.model)
    card = await resources.catalog.card(model)
    profile = Profile.from_card(card)
    if request.trigger == "job":
        profile = profile.for_job()
    temperature = persona.temperature
    if profile.is_compact and temperature is None and "temperature" not in agent.model_fields_set:
        temperature = 0.0
    # A pseudonym that is stable while this process runs lets the server find the conversation's
    # prompt in its cache, without revealing whose conversation it is. Keyed, because the hash of a
    # guessable name could be found by trying names.
    conversation = request.conversation
    if request.is_unrecorded:
        name = blake2b(conversation.encode(), key=_UNRECORDED_KEY, digest_size=8)
        conversation = name.hexdigest()
    options = RequestOptions(
        f"{resources.name}/{conversation}",
        request.priority,
        model,
        purpose=ANSWER if request.is_by_person else request.trigger,
        room="" if request.is_unrecorded else memory.room,
        person=pseudonyms.of(payer) if (payer := request.payer) else "",
        channel=pseudonyms.of(memory.room),
        temperature=temperature,
        max_tokens=persona.max_tokens or agent.max_tokens or profile.max_tokens,
        filters_output=profile.filters_output,
        may_be_silent=request.is_unasked,
        limit=profile.answer_limit(request.known_reading),
        accepts_images=card is not None and card.capabilities.vision is True,
    )
    return ModelChoice(persona, options, profile)


async def build_prompt(
    resources: Resources, request: TurnRequest, memory: RoomMemory, choice: ModelChoice
) -> Prompt:
    """Build the prompt: persona, matching skills, and the tools to offer to the model."""
    prompt_request = PromptRequest(
        request.text,
        memory.room,
        choice.persona,
        request.values,
        request.known_reading,
        (*request.tools, *([memory] if request.keeps else [])),
        request.asker(resources.conversations),
        HintContext(resources.clock.now(), resources.configuration.agent.zone, request.reading),
    )
    return await resources.configuration.prompts.build(
        resources.skills, prompt_request, choice.profile
    )


async def create_context(
    resources: Resources,
    request: TurnRequest,
    memory: RoomMemory,
    choice: ModelChoice,
    prompt: Prompt,
    quoted: QuotedAnswer | None,
) -> Context:
    """Create the context of the conversation (a compact one for a small model), not yet loaded.

    The log lines in `quoted` are included. Raises StorageError.
    """
    profile = choice.profile
    given = PromptInput(
        store=resources.conversations,
        conversation=request.conversation,
        room=memory.room,
        person=memory.person,
        system=prompt.system,
        question=request.question(),
        replaces=request.replaces,
        image=request.image,
        log_window=request.log_window,
        found=quoted.events if quoted else (),
    )
    if profile.is_compact:
        return CompactPromptContext(
            given,
            reading=request.known_reading,
            notes=prompt.hints,
            is_unsure=quoted is not None and not quoted.is_sure,
            profile=profile,
            now=resources.clock.now,
        )
    since = request.log_window.since if request.log_window else None
    agent = resources.configuration.agent
    now = resources.clock.now().astimezone(agent.zone)
    ahead = f" (UTC{now.isoformat()[-6:]})" if now.utcoffset() else ""
    clock = PromptSection(
        "now",
        f"{now:%A %Y-%m-%d %H:%M} {agent.zone_name}{ahead}. All lines have times of this zone.",
        120,
    )
    stable, personal = await memory.sections(request.text)
    if (origin := request.origin) and request.keeps and request.is_by_person:
        shared = resources.shared_memory.section(
            memory, request.text, origin.network, origin.scope, private=request.private
        )
        personal = (*personal, await shared)
    return PromptContext(
        given,
        sections=(*stable, *personal, *prompt.question_sections, clock),
        # What somebody wants to have looked at since a time is shown whole if it fits.
        share=1.0 if since else agent.context_share,
        most_tokens=profile.context_tokens,
        now=resources.clock.now,
    )


def create_trace(resources: Resources, request: TurnRequest, choice: ModelChoice) -> Trace:
    """Create the trace of a turn, which is stored in the tendril's runs.

    The readers of the trace of a private conversation do not see its name. If memory does not keep
    the turn, the name is not stored either; for a person's question, nothing is stored then.
    """
    run = Run(
        request.run or choice.options.id,
        request.conversation if request.keeps else "",
        request.trigger,
        choice.options.model or resources.configuration.agent.model,
        resources.clock.now(),
        private=request.private or not request.keeps,
        caller=request.origin.run if request.origin else "",
        model_profile=choice.profile.name,
    )
    store = None if request.is_unrecorded else resources.runs
    log_window, reading = request.log_window, request.known_reading
    event_id = log_window.question_event_id if log_window else None
    trace = Trace(run, store, event_id, before=request.reading_time)
    if request.reading:
        verdict = f"{reading.certainty:.2f} {reading.language}" if reading.kind else ""
        trace.add("reading", reading.kind or "unclear", trace.began, verdict=verdict)
    return trace


class Pseudonyms:
    """The pseudonyms of the people and channels of the tendril `name`, for which the agent server
    keeps separate budgets; `now` returns the time in UTC.

    They are stable for one UTC day, the period of a budget, also across restarts. Each day has its
    own random key in a file in `DATA/run`, which backups leave out. The file is deleted when the
    next key is created; from then on nobody can compute the old pseudonyms.
    """

    def __init__(self, data: Path, name: str, now: Callable[[], datetime]) -> None:
        self._folder, self._name, self._now = data / "run", name, now
        self._day: date | None = None
        self._key = b""

    def of(self, name: str) -> str:
        """Return today's pseudonym of a person or channel: 16 hexadecimal digits."""
        today = self._now().date()
        if today != self._day:
            self._day, self._key = today, self._key_of(today)
        text = f"{self._name} {name}"
        return blake2b(text.encode(), key=self._key, digest_size=8).hexdigest()

    def _key_of(self, day: date) -> bytes:
        """Return the key of a day, from its file, which is written if it has none."""
        path = self._folder / f"{self._name}-{day.isoformat()}.key"
        try:
            make_folder(self._folder)
            for old in set(self._folder.glob(f"{self._name}-????-??-??.key")) - {path}:
                old.unlink(missing_ok=True)
            with open(os.open(path, os.O_CREAT | os.O_RDWR, 0o600), "r+b") as file:
                # Several processes of a tendril, as IRC standbys, share the file: one writes the
                # key, and the others wait for that moment.
                fcntl.flock(file, fcntl.LOCK_EX)
                key = file.read()
                if len(key) != _KEY_BYTES:  # new, or a crash came before it was written
                    key = secrets.token_bytes(_KEY_BYTES)
                    file.seek(0)
                    file.truncate()
                    file.write(key)
            return key
        except OSError as error:  # a full disk: the pseudonyms are stable only in this process
            _log.warning("pseudonyms.not_kept", error=str(error))
            return secrets.token_bytes(_KEY_BYTES)
