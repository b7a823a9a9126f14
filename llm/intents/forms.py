"""Forms of whole questions that are commands, in English and German, by command and argument."""

from __future__ import annotations

import re
from collections.abc import Mapping

from llm.intents.question_text import forms

ABILITIES, IDENTITY, MODEL, BOT = "abilities", "identity", "model", "bot"
"""The arguments of the command `about`: what somebody wants to know about the bot."""

THERE = "there"
"""The argument of the command `ping` when somebody asks whether the bot is there."""

LIST = forms(
    r"(?:what|which) (?:are )?(?:all )?(?:my |the )?reminders(?: do i have| are there| are set)?",
    r"(?:list|show|show me)(?: all)?(?: of)?(?: my| the)? reminders|my reminders",
    r"(?:do i have|have i got|are there|do you have|have you got)(?: any| some)? reminders"
    r"(?: set| pending| left)?(?: for me)?",
    r"(?:what|which) (?:reminders )?did i (?:ask you to remind me (?:of|about)|set)",
    r"what(?:'s| is| do i have) on my (?:reminder list|list of reminders)",
    r"when(?:'s| is) my next reminder(?: due)?|what(?:'s| is) my next reminder",
    r"what (?:are you going to|will you) remind me (?:of|about)",
    r"(?:welche|habe ich|zeige?(?: mir)?)(?: meine)? ?erinnerungen(?: habe ich)?",
    r"meine erinnerungen",
)
WHOLE: Mapping[tuple[str, str], tuple[re.Pattern[str], ...]] = {
    ("memory", ""): forms(
        r"what (?:do|did|have) you (?:know|remember(?:ed)?|keep|kept|learn(?:ed|t)?|stored?)"
        r" (?:of|about) me(?: so far)?",
        r"(?:(?:show|list|tell)(?: me)? )?what you (?:know|remember) about me",
        r"(?:show|list)(?: me)? your memory of me",
        r"what (?:have|did) i (?:told?|tell) you(?: so far)? about (?:me|myself)(?: so far)?",
        r"(?:show|list)(?: me)? my facts",
        r"was weißt du (?:alles )?(?:über|von) mi(?:ch|r)(?: alles)?|my memory|memory",
    ),
    ("who", ""): forms(
        r"(?:who is|who'?s|who all is|who else is|who are)(?: all)?"
        r"(?: currently| still| also| else)?"
        r" (?:here|online|around|present|in (?:this|the) (?:channel|room|chat))"
        r"(?: right now| now| today| at the moment)?",
        r"(?:list|show)(?: me)?(?: all)? (?:the )?(?:people|users|nicks|members)(?: here)?",
        r"how many (?:people|users|nicks|members|persons|of us)(?: are)?(?: there)?(?: currently)?"
        r" (?:in )?(?:here|online|around|present|in (?:this|the) (?:channel|room|chat))"
        r"(?: right now| now| today| at the moment)?",
        r"wer ist (?:gerade |jetzt |alles |noch )?(?:hier|da|online|im (?:kanal|raum|channel))"
        r"(?: gerade| jetzt)?",
    ),
    ("stats", ""): forms(
        r"(?:(?:show|give)(?: me)?(?: the| some)? |the )?(?:channel |chat )?"
        r"(?:stats|statistics|statistik)"
        r"(?: (?:for|of|about|on) (?:this|the) (?:channel|chat|room))?",
        r"who (?:talks|speaks|writes|chats|says|posts)(?: the)? most"
        r"(?: here| in here| in (?:this|the) (?:channel|room|chat))?",
        r"who(?:'s| is| are) (?:the )?(?:most active|busiest|most talkative)(?: person| people"
        r"| user| users)?(?: here| in here| in (?:this|the) (?:channel|room|chat))?",
        r"how (?:active|busy) is (?:this|the|it)(?: channel| chat| room)?(?: here)?",
        r"how (?:many|much) (?:messages|lines)(?: are| were| have been)?(?: there)?"
        r"(?: said| written| logged)?(?: here| in (?:this channel|here|the log))?",
        r"wer (?:redet|schreibt|spricht) (?:hier )?am meisten(?: hier)?",
    ),
    ("stop", ""): forms(
        r"(?:please )?stop(?: it| that| this| now| talking| writing| answering| please)?",
        r"halt|stopp|hör auf|shut up|be quiet|abbrechen|cancel(?: that| it)?",
    ),
    ("clear", ""): forms(
        r"(?:forget|clear|reset|erase|wipe|delete) (?:our|this|the|my) (?:conversation|chat)"
        r"(?: history)?|(?:let'?s )?start (?:over|afresh|again from scratch|from scratch)",
        r"(?:let'?s )?(?:(?:start|begin|have) )?(?:a )?(?:new|fresh) (?:conversation|chat|topic)"
        r"|clear|reset",
        r"(?:wipe|clear|erase|forget) your memory of (?:this|our|the) (?:conversation|chat)",
        r"vergiss unser(?:e)? (?:gespräch|unterhaltung)|neues gespräch|von vorne?(?: anfangen)?"
        r"|(?:fang|lass uns) (?:noch ?mal )?von vorne? an(?:fangen)?",
    ),
    # `.forget` without a name only says how everything is removed; it removes nothing.
    ("forget", ""): forms(
        r"(?:forget|delete|erase|remove|wipe) (?:me|my data|all (?:of )?my (?:data|messages)"
        r"|(?:everything|anything|all)(?: that)?(?: you(?: have)? (?:know|known|stored|saved|kept"
        r"|logged|collected|remember))? (?:about|on|of|from) me)",
        r"(?:vergiss|lösche?) (?:mich|alles(?:,? was du)? (?:über|von) (?:mich|mir)(?: weißt)?"
        r"|alle meine daten|meine daten)",
    ),
    ("more", ""): forms(
        r"more|show(?: me)?(?: the)? more|(?:show me |say |give me )?the rest(?: of it)?|mehr"
        r"|den rest"
    ),
    ("help", ""): forms(
        r"help(?: me)?|hilfe|(?:list|show)(?: me)?(?: all)?(?: your| the)? commands|commands",
        r"(?:what|which) (?:are your )?commands(?: do you (?:have|know|understand))?",
        r"(?:what|which) commands are there",
        r"how (?:do|can) i (?:use|talk to|command) you|how does this(?: bot)? work|befehle",
        r"how do you work|wie (?:benutze|bediene) ich dich|welche befehle (?:kennst|hast) du",
    ),
    ("about", ABILITIES): forms(
        r"what (?:can|could) you (?:all )?do(?: for (?:me|us))?|what do you do|what all can you do",
        r"what are your (?:abilities|skills|features|capabilities)",
        r"what are you (?:able to do|good at|for)",
        r"how (?:can|could) you help(?: me| us)?|what (?:can|should) i ask(?: you)?",
        r"was kannst du(?: alles| so| denn)?|wobei kannst du(?: mir)? helfen",
    ),
    ("about", IDENTITY): forms(
        r"(?:who|what)(?: exactly)? are you(?: exactly)?",
        r"who am i (?:talking|speaking) (?:to|with)",
        r"who (?:made|built|created|wrote|programmed) you|where do you come from",
        r"introduce yourself|(?:tell me )?(?:about|something about) yourself|what'?s your name",
        r"what is your name|(?:wer|was) bist du(?: eigentlich)?|wie heißt du|stell dich vor",
    ),
    ("about", MODEL): forms(
        r"(?:what|which)(?: ai| language)? (?:model|llm)(?: are you| is this| do you (?:use|run)"
        r"| are you (?:using|running|based|built)| runs you| powers you)(?: on)?",
        r"what'?s your model|what is your model|what are you (?:running|based|built) on",
        r"are you (?:chat ?gpt|gpt(?:-?\d\S*)?|claude|gemini|llama|qwen|mistral|copilot)",
        r"welches (?:sprach)?modell (?:bist|benutzt|nutzt|verwendest) du",
    ),
    ("about", BOT): forms(
        r"are you (?:really )?(?:an? )?(?:real )?(?:bot|robot|human|person|machine|ai|program"
        r"|computer|real|alive|llm)(?: being)?(?: or (?:an? )?(?:bot|human|robot|person))?",
        r"bist du (?:ein(?:e)? )?(?:echter )?(?:bot|mensch|maschine|roboter|ki|programm|echt)",
    ),
    ("ping", ""): forms(r"ping"),
    ("ping", THERE): forms(
        r"(?:are )?you (?:still )?(?:there|here|awake|online|around|up|alive|working)",
        r"bist du (?:noch )?(?:da|wach|online)",
    ),
    ("version", ""): forms(
        r"version|(?:what|which) version(?: are you| is this| of terrarium)?(?: running| on)?"
        r"|(?:what(?:'s| is) )your version|welche version(?: bist du| läuft)?"
    ),
    ("reminders", ""): LIST,
}
