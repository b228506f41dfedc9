"""Rows and decisions of the catalogue that no longer hold as they are written there,
and why.
"""

from __future__ import annotations

AMENDED = {
    "A5": (
        "Imports use the message's id as key within the conversation that the message names, if it names one:"
        " many exports number the messages of each conversation from 1. An expired key counts as absent, and"
        " if_exists='update', 'replace' and 'keep' create over deleted keys: what expired or was deleted is not"
        " there for who asks for the current value."
    ),
    "A32": (
        "Entries of one moment follow the order in which they were written, not their ids, which are hashes"
        " under a key. Entries of earlier releases have no sequence: they come first, by id."
    ),
    "A36": (
        "Expired entries are hidden at once, and a sweep deletes them 24 hours later"
        " (`durations.expired_grace`, decision 047; zero keeps them), since a life that was given to a text"
        " is a promise to whom it is about."
    ),
    "A58": (
        "The number of erased entries has `sessions_left`: the sessions of the user, or the conversation of"
        " the session, which the erasure of a scope does not reach."
    ),
    "A81": (
        "If the merged metadata are beyond the limits of an entry, the metadata given are taken alone."
        " Without any, and for tags, it is refused before the callback is called: a model's work is not"
        " thrown away."
    ),
    "A111": (
        "Tokens are estimated by classes of characters. A quarter of a token a character was a third of the"
        " truth for Hindi."
    ),
    "B24": (
        "A message for the window only that is appended again without `in_history=False` enters the history."
        " It keeps its place and gets the next number: else what was said would be in no history."
    ),
    "B52": (
        "A roll-back restores exactly the window at the checkpoint: what was excluded, cleared or replaced"
        " since comes back too, and what was restored since leaves. Erased messages stay gone. The earlier"
        " rule kept what was excluded since out."
    ),
    "B43": (
        "`keep_last` of `Threshold` is None by default: what is kept is chosen by tokens. The last 40"
        " messages may cost more than the limit."
    ),
    "B45": (
        "Chinese costs 1.45 tokens a character, kana 1.15, Korean 1.3; digits and punctuation cost more than"
        " a quarter. Measured by cl100k."
    ),
    "B46": (
        "By tokens, messages behind the last user message leave too where they have no room. Else no window"
        " of an agent's run gets shorter."
    ),
    "B48": (
        "A summary that says nothing, or asks for a tool, is `Summary generation failed.` also where there is"
        " an earlier one. That one would stand for messages of which it does not speak: they would be in"
        " neither the summary nor the window."
    ),
    "A84": (
        "Sources that are deleted or edited while the callback works are not summarised: nothing is stored"
        " and none of them is deleted, since the summary would say what was taken away."
    ),
    "B53": (
        "A result without an id answers calls by the tool's name and in order, behind results that name"
        " theirs by id. A context holds a stand-in for each missing result, since providers reject a call"
        " without one; `repair_tool_calls` stores it."
    ),
    "B12": (
        "Opening an existing session with another user, agent, namespace or system message raises"
        " `SessionOwnerMismatch`, unless it was created with `shared=True`: two users of one id read each"
        " other's messages. Another title, tags, metadata or expiry is refused likewise, with a pointer to"
        " `sessions.update`: ignored in silence, a caller believed that they held."
    ),
    "C33": (
        "A write removes only messages that the last read of its task showed, or the window as it is where"
        " the task has read none: with one known set per handle, concurrent tasks lost messages. What a"
        " budget, a limit or a query left out of that read stays. A read by a child task counts as its"
        " parent's."
    ),
    "D9": (
        "Any number from 0 on is a moment, since a small one is as valid. As an expiry a number below 10^8 is"
        " still refused: it was meant as a length of time."
    ),
    "D56": (
        "Only accents, optional points and the tatweel are stripped. Vowel signs, viramas and tone marks"
        " stay: they tell words apart. Digits of all scripts are the same digits."
    ),
    "D75": (
        "Age does not count if the question names a period, such as March 2026: the entries of that period"
        " are asked for, and age put every newer entry before them."
    ),
    "D102": (
        "Tags of a text that was edited while the advisor was asked are not added: they may say what was"
        " taken away."
    ),
    "D52": "Cursors carry the moment, the sequence and the id, since ties follow the sequence.",
}
"""The reason by the row's number."""
