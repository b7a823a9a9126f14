"""Preparation of a turn: the choice of model, the prompt, the context and the trace."""

from __future__ import annotations

import secrets
from dataclasses import dataclass, replace
from hashlib import blake2b

from harnesses.core.tendril.resources import TendrilResources
from harnesses.core.tendril.turn import TurnRequest
from llm.agent.tool_executor import UNASKED
from llm.agent.trace import Spawn, Trace
from llm.client.client import RequestOptions
from llm.client.profile import Profile
from llm.client.token_usage import ANSWER
from llm.log_questions.answers import QuotedAnswer
from llm.memory.room import RoomMemory
from llm.messages.message import PromptSection
from llm.prompt.builder import Persona, Prompt, PromptRequest
from llm.prompt.compact_context import CompactPromptContext
from llm.prompt.context_manager import ContextLimits, Conversation, PromptContext, PromptInput
from llm.reading.reading import Reading
from llm.skills.hint import HintContext
from storage.runs.runs import Run

_PSEUDONYM_KEY = secrets.token_bytes(16)
"""The hash key for pseudonyms of unrecorded conversations. It is never stored, so nobody can link
them to a conversation after this process has ended."""

Context = PromptContext | CompactPromptContext


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """The persona, the options of each model request, and the profile of the model."""

    persona: Persona
    options: RequestOptions
    profile: Profile


async def choose_model(
    tendril: TendrilResources, request: TurnRequest, memory: RoomMemory
) -> ModelChoice:
    """Choose the model: that of the request, else that of the persona, else the configured one.

    Names unknown to the server are ignored. A job gets the budget of a large model, because it
    needs all of its material. A small model answers best briefly and at temperature 0, which is the
    default for it; the persona or the configuration can set another temperature.
    """
    persona = tendril.prompts.personas.choose(request.persona)
    resolve = tendril.catalog.resolve
    options = RequestOptions(
        _session(tendril, request),
        request.priority,
        await resolve(request.model) or await resolve(persona.model),
        purpose=ANSWER if request.is_by_person else request.profile,
        room="" if request.is_unrecorded else memory.room,
        person=tendril.pseudonyms.of(request.budget_owner or request.person or request.who),
        channel=tendril.pseudonyms.of(memory.room),
        temperature=persona.temperature,
        wants_status=request.wants_status or request.profile in UNASKED,
    )
    card = await tendril.catalog.card(options.model)
    profile = Profile.from_card(card)
    options = replace(
        options,
        accepts_images=card is not None and card.accepts_images,
        max_tokens=persona.max_tokens or tendril.agent.max_tokens or profile.max_tokens,
        filters_output=profile.filters_output,
    )
    if request.profile == "job":
        profile = profile.for_job()
    if profile.is_compact:
        if options.temperature is None and "temperature" not in tendril.agent.model_fields_set:
            options = replace(options, temperature=0.0)
        options = replace(options, limit=profile.answer_limit(reading_of(request)))
    return ModelChoice(persona, options, profile)


def reading_of(request: TurnRequest) -> Reading:
    """Return what was read from a question; of one that nobody asked, nothing."""
    return request.reading or Reading(request.text)


def _session(tendril: TendrilResources, request: TurnRequest) -> str:
    """Return the session name of a conversation, for the agent server and the token accounting."""
    # A pseudonym that is stable while this process runs lets the server find the conversation's
    # prompt in its cache, without revealing whose conversation it is.
    if request.is_unrecorded:
        return f"{tendril.name}/{_pseudonym(request.conversation)}"
    return f"{tendril.name}/{request.conversation}"


async def build_prompt(
    tendril: TendrilResources, request: TurnRequest, memory: RoomMemory, choice: ModelChoice
) -> Prompt:
    """Build the prompt: persona, matching skills, and the tools to offer to the model."""
    prompt_request = PromptRequest(
        request.text,
        memory.room,
        choice.persona,
        request.values,
        reading_of(request),
        (tendril, *request.tools, *memory.tools(request.keeps)),
        request.asker(tendril.conversations),
        request.wants_status,
        HintContext(tendril.clock.now(), tendril.agent.zone, request.reading),
    )
    return await tendril.prompts.build(tendril.skills, prompt_request, choice.profile)


async def create_context(
    tendril: TendrilResources,
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
    conversation = Conversation(
        tendril.conversations, request.conversation, memory.room, memory.person
    )
    given = PromptInput(
        conversation,
        prompt.system,
        request.question(),
        request.log_window,
        quoted.events if quoted else (),
    )
    if profile.is_compact:
        return CompactPromptContext(
            given,
            reading=reading_of(request),
            notes=prompt.hints,
            is_unsure=quoted is not None and not quoted.is_sure,
            profile=profile,
            now=tendril.clock.now,
        )
    since = request.log_window.since if request.log_window else None
    stable, own = await memory.sections(request.text)
    return PromptContext(
        given,
        sections=(*stable, *own, *prompt.question_sections, _clock_section(tendril)),
        # What somebody wants to have looked at since a time is shown whole if it fits.
        limits=ContextLimits(1.0 if since else tendril.agent.context_share, profile.context_tokens),
        now=tendril.clock.now,
    )


def create_trace(
    tendril: TendrilResources, request: TurnRequest, choice: ModelChoice, background: Spawn | None
) -> Trace:
    """Create the trace of a turn, which is stored in the tendril's runs; `background` starts the
    task that closes it.

    The readers of the trace of a private conversation do not see its name. If memory does not keep
    the turn, the name is not stored either; for a person's question, nothing is stored then.
    """
    log_window = request.log_window
    run = Run(
        request.run or choice.options.id,
        request.conversation if request.keeps else "",
        request.profile,
        choice.options.model or tendril.agent.model,
        tendril.clock.now(),
        log_window.anchor if log_window else 0,
        request.private or not request.keeps,
        request.origin.run if request.origin else "",
        choice.profile.name,
    )
    store = None if request.is_unrecorded else tendril.runs
    return Trace(run, store, background, log_window.pending_event if log_window else None)


def _clock_section(tendril: TendrilResources) -> PromptSection:
    """Return a section with the local time and its zone, which is that of all lines too."""
    now = tendril.clock.now().astimezone(tendril.agent.zone)
    zone, offset = tendril.agent.zone_name, f"{now:%z}"
    ahead = f" (UTC{offset[:3]}:{offset[3:]})" if now.utcoffset() else ""
    return PromptSection(
        "now", f"{now:%A %Y-%m-%d %H:%M} {zone}{ahead}. All lines have times of this zone.", 120
    )


def _pseudonym(name: str) -> str:
    """Return a pseudonym of a name: a keyed hash that is stable until this process ends."""
    # Keyed, because the hash of a guessable name could be found by trying names.
    return blake2b(name.encode(), key=_PSEUDONYM_KEY, digest_size=8).hexdigest()
