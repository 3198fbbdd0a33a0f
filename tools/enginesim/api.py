"""OpenAI's request and answer shapes as vLLM reads and writes them. Pure text in, text out; used by ``service.py``."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tools.enginesim.text import count_tokens

DONE_EVENT = b"data: [DONE]\n\n"
UNSUPPORTED = (
    "tools",
    "functions",
    "response_format",
    "guided_json",
    "structured_outputs",
    "logprobs",
    "prompt_logprobs",
)


class ApiError(Exception):
    """An answer other than 200, in vLLM's shape."""

    def __init__(self, status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.document = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True)
class Call:
    """One completion request, validated. ``roles`` is what a chat template would add to the content."""

    chat: bool
    model: str
    prompt: bytes
    roles: str
    prompt_tokens: int
    max_tokens: int | None
    ignore_eos: bool
    stream: bool
    include_usage: bool
    continuous_usage: bool
    seed: int | None
    cache_salt: str | None


def parse_call(body: bytes, chat: bool, max_model_len: int, served: tuple[str, ...]) -> Call:
    """The body of ``/v1/chat/completions`` or ``/v1/completions``; ``ApiError`` as vLLM would answer."""
    try:
        document = json.loads(body)
    except ValueError as error:
        raise ApiError(400, f"Invalid JSON: {error}", "Bad Request") from error
    if not isinstance(document, dict):
        raise ApiError(400, "Input should be a valid dictionary", "Bad Request")
    model = document.get("model") or served[0]
    if model not in served:
        raise ApiError(404, f"The model `{model}` does not exist.", "NotFoundError", "model")
    _refuse_unsupported(document)
    prompt, roles = _chat_prompt(document) if chat else (_text_prompt(document), "")
    limit = document.get("max_completion_tokens") if chat else None
    limit = document.get("max_tokens") if limit is None else limit
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise ApiError(400, f"max_tokens must be at least 1, got {limit}.", param="max_tokens")
    tokens = count_tokens(prompt)
    _check_length(tokens, limit, max_model_len)
    options = document.get("stream_options") or {}
    stream = bool(document.get("stream", False))
    if options and not stream:
        raise ApiError(400, "Stream options can only be defined when `stream=True`.", "Bad Request", "stream_options")
    return Call(
        chat=chat,
        model=str(model),
        prompt=prompt,
        roles=roles,
        prompt_tokens=tokens,
        max_tokens=limit,
        ignore_eos=bool(document.get("ignore_eos", False)),
        stream=stream,
        include_usage=bool(options.get("include_usage", False)),
        continuous_usage=bool(options.get("include_usage") and options.get("continuous_usage_stats", False)),
        seed=document.get("seed"),
        cache_salt=document.get("cache_salt"),
    )


def _refuse_unsupported(document: Mapping[str, Any]) -> None:
    if document.get("n", 1) != 1:
        raise ApiError(400, "The engine simulator answers one choice per request: n must be 1.", param="n")
    for key in UNSUPPORTED:
        if document.get(key):
            raise ApiError(400, f"The engine simulator does not support `{key}`.", param=key)


def _chat_prompt(document: Mapping[str, Any]) -> tuple[bytes, str]:
    messages = document.get("messages")
    if not isinstance(messages, list) or not messages:
        raise ApiError(
            400, "[{'type': 'missing', 'loc': ('body', 'messages'), 'msg': 'Field required'}]", "Bad Request"
        )
    contents: list[str] = []
    roles: list[str] = []
    for message in messages:
        if not isinstance(message, dict) or "role" not in message:
            raise ApiError(400, "Every message needs a role.", "Bad Request", "messages")
        content = message.get("content") or ""
        if isinstance(content, list):
            if any(part.get("type") != "text" for part in content):
                raise ApiError(400, "The engine simulator reads text parts only.", param="messages")
            content = "".join(part["text"] for part in content)
        contents.append(content)
        roles.append(f"{message['role']}:{len(content)}")
    return "".join(contents).encode(), ",".join(role.partition(":")[0] for role in roles)


def _text_prompt(document: Mapping[str, Any]) -> bytes:
    prompt = document.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        prompt = prompt[0]
    if not isinstance(prompt, str):
        raise ApiError(400, "The engine simulator reads one prompt as a string.", param="prompt")
    return prompt.encode()


def _check_length(prompt_tokens: int, limit: int | None, max_model_len: int) -> None:
    if prompt_tokens >= max_model_len:
        raise ApiError(
            400,
            f"This model's maximum context length is {max_model_len} tokens. However, your request has {prompt_tokens} "
            "input tokens. Please reduce the length of the input messages.",
            param="input_tokens",
        )
    if limit is not None and prompt_tokens + limit > max_model_len:
        raise ApiError(
            400,
            f"'max_tokens' or 'max_completion_tokens' is too large: {limit}. This model's maximum context length is "
            f"{max_model_len} tokens and your request has {prompt_tokens} input tokens "
            f"({limit} > {max_model_len} - {prompt_tokens}).",
            param="max_tokens",
        )


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int | None = None) -> dict[str, Any]:
    """vLLM's usage object; ``cached_tokens`` only where ``--enable-prompt-tokens-details`` asks for it."""
    document: dict[str, Any] = {
        "prompt_tokens": prompt_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "completion_tokens": completion_tokens,
    }
    if cached_tokens is not None:
        document["prompt_tokens_details"] = {"cached_tokens": cached_tokens}
    return document


class EventWriter:
    """Makes the events of one stream; everything that does not change is put together once."""

    def __init__(self, call: Call, request_id: str, created: int, fingerprint: str) -> None:
        kind = "chat.completion.chunk" if call.chat else "text_completion"
        model = json.dumps(call.model)
        self.head = f'data: {{"id":"{request_id}","object":"{kind}","created":{created},"model":{model},"choices":['
        self.chat = call.chat
        self.prompt_tokens = call.prompt_tokens
        self.continuous = call.continuous_usage
        self.fingerprint = fingerprint

    def _usage(self, completion_tokens: int) -> str:
        if not self.continuous:
            return ""
        return ',"usage":' + json.dumps(usage(self.prompt_tokens, completion_tokens), separators=(",", ":"))

    def role(self) -> bytes:
        """The first event of a chat: a role and empty content."""
        choice = '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        return f'{self.head}{choice}],"prompt_token_ids":null{self._usage(0)}}}\n\n'.encode()

    def content(self, text: str, finish_reason: str | None, completion_tokens: int) -> bytes:
        """Some tokens; the last ones carry the finish reason, as in vLLM."""
        end = "null" if finish_reason is None else f'"{finish_reason}","stop_reason":null'
        if self.chat:
            delta = f'{{"content":"{text}"}}' if text else "{}"
            choice = f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{end},"token_ids":null}}'
        else:
            stop = "" if finish_reason else ',"stop_reason":null'
            choice = f'{{"index":0,"text":"{text}","logprobs":null,"finish_reason":{end}{stop}}}'
        return f"{self.head}{choice}]{self._usage(completion_tokens)}}}\n\n".encode()

    def final_usage(self, completion_tokens: int) -> bytes:
        """The event without choices that ``include_usage`` asks for."""
        counts = json.dumps(usage(self.prompt_tokens, completion_tokens), separators=(",", ":"))
        return f'{self.head}],"usage":{counts},"system_fingerprint":"{self.fingerprint}"}}\n\n'.encode()


def full_answer(
    call: Call, request_id: str, created: int, fingerprint: str, text: str, finish_reason: str, tokens: int
) -> dict[str, Any]:
    """The answer to a request without ``stream``."""
    choice: dict[str, Any] = {"index": 0}
    if call.chat:
        choice["message"] = {"role": "assistant", "content": text, "refusal": None, "tool_calls": []}
    else:
        choice["text"] = text
    choice |= {"logprobs": None, "finish_reason": finish_reason, "stop_reason": None}
    return {
        "id": request_id,
        "object": "chat.completion" if call.chat else "text_completion",
        "created": created,
        "model": call.model,
        "choices": [choice],
        "system_fingerprint": fingerprint,
        "usage": usage(call.prompt_tokens, tokens),
    }
