"""An advisor behind an endpoint that speaks as OpenAI's does: it gives what is written
tags, and says what it takes the place of.

    OPENAI_BASE_URL=http://localhost:11434/v1 OPENAI_MODEL=llama3.2 python examples/advisor.py "Ada lives in Porto now."

OPENAI_BASE_URL and OPENAI_MODEL say where and which, and OPENAI_API_KEY by what right,
where the endpoint wants one. MEMORY_CONFIG names the stores; by default it is the file
advisor.db beside you. What is written is sent to that endpoint, with the older entries
that are near it, and nothing else.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import urllib.request
from collections.abc import Mapping

from memory import Memory
from memory.ports.advisor import Advice, Prompt

PATIENCE = 30.0
"""Seconds after which a call is given up. A thread cannot be stopped from outside:
without this one that hangs would be there for good.
"""


class OpenAIAdvisor:
    """Asks `POST base_url/chat/completions`, each time in a thread; says what the
    answer cost, where the endpoint does.
    """

    def __init__(self, base_url: str, model: str, api_key: str = "") -> None:
        self.model = model
        self._url = base_url.rstrip("/") + "/chat/completions"
        self._headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {api_key}"} if api_key else {}
        )

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> OpenAIAdvisor | None:
        """By OPENAI_BASE_URL, OPENAI_MODEL and OPENAI_API_KEY; none where the first two
        do not say.
        """
        url, model = environ.get("OPENAI_BASE_URL", ""), environ.get("OPENAI_MODEL", "")
        return cls(url, model, environ.get("OPENAI_API_KEY", "")) if url and model else None

    async def advise(self, prompt: Prompt) -> str:
        return await asyncio.to_thread(self._ask, prompt)

    def _ask(self, prompt: Prompt) -> Advice:
        said = json.dumps({"model": self.model, "messages": prompt.to_messages(), "temperature": 0}).encode()
        request = urllib.request.Request(self._url, said, self._headers)  # noqa: S310 - the endpoint of whoever runs this
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:  # noqa: S310
            answer = json.load(response)
        usage = answer.get("usage") or {}
        text = answer["choices"][0]["message"]["content"] or ""
        return Advice(
            text, input_tokens=usage.get("prompt_tokens"), output_tokens=usage.get("completion_tokens")
        )


async def remember(text: str, advisor: OpenAIAdvisor | None) -> None:
    config = None if "MEMORY_CONFIG" in os.environ else "sqlite:///advisor.db"
    async with Memory(
        config,
        advisor=advisor,
        enrichment={"auto_tag": True, "auto_supersede": True},
        durations={"advice": "40s"},
    ) as memory:
        written = await memory.write_with_report(text, scope="user:me", wait="60s")
        print(f"remembered: {written.entry.content} {written.entry.tags}")
        for told in (written.auto_tag, written.supersede):
            print(f"  · {told}" if told else "  · nobody was asked: set OPENAI_BASE_URL and OPENAI_MODEL")
        for cost in written.costs:
            print(f"  · {cost.of} by {cost.model}: {cost.input_tokens} tokens in, {cost.output_tokens} out")


if __name__ == "__main__":
    asyncio.run(
        remember(" ".join(sys.argv[1:]) or "Ada lives in Porto now.", OpenAIAdvisor.from_environment())
    )
