"""Conversations through chat templates, for chat_template_test.cpp: what transformers' apply_chat_template makes of them.

    python chat_templates.py FOLDER TEMPLATES

TEMPLATES is the folder of the Python package trl that holds *.jinja. Writes FOLDER/tokenizer (a tokenizer of transformers over a
small vocabulary), FOLDER/cases.json: [{"template": name, "source": text, "options": {...}, "messages": [...], "text": text or null
where it is refused, "mask": [...]}, ...].
"""

import datetime
import json
import logging
import pathlib
import sys

import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, decoders
from transformers.utils import chat_template_utils

NOW = 1_700_000_000
TOOLS = [
    {"type": "function", "function": {
        "name": "get_weather", "description": "The weather of a city, \"now\" <b>&</b> é",
        "parameters": {"type": "object", "properties": {
            "city": {"type": "string", "description": "The city's name", "enum": ["Paris", "Köln"]},
            "days": {"type": ["integer", "null"], "default": 3},
            "parts": {"type": "array", "items": {"type": "string"}},
            "where": {"type": "object", "properties": {"lat": {"type": "number"}, "lon": {"type": "number", "nullable": True}},
                      "required": ["lat"]}}, "required": ["city"]},
        "return": {"type": "string"}}},
    {"type": "function", "function": {"name": "stop", "description": "Ends it.", "parameters": {"type": "object", "properties": {}}}}]
CALL = {"id": "call00001", "type": "function", "function": {
    "name": "get_weather", "arguments": {"city": "Köln", "days": 2, "deep": {"list": [1, 2.5, None, True, "it's \"q\""], "e": 1e-7}}}}


def say(role, content, **more):
    return {"role": role, "content": content, **more}


U, A, S = "user", "assistant", "system"
TOOL_USE = [say(U, "What is the weather in Köln?"), say(A, "", tool_calls=[CALL]),
            say("tool", "{\"t\": 21.5}", name="get_weather", tool_call_id="call00001"), say(A, "It is 21.5 degrees.")]
PARTS = [{"type": "text", "text": "What is "}, {"type": "image"}, {"type": "text", "text": "this?"}]
TALKS = {
    "plain": [say(U, "Hello")],
    "answer": [say(U, "Hello"), say(A, "Hi there!")],
    "system": [say(S, "Be brief."), say(U, "Hello"), say(A, "Hi."), say(U, "Why?")],
    "long": [say(S, "Be brief.")] + [say(U if i % 2 == 0 else A, f"Turn {i}") for i in range(9)],
    "two_users": [say(U, "One"), say(U, "Two"), say(A, "Three")],
    "assistant_first": [say(A, "I begin."), say(U, "Oh")],
    "late_system": [say(U, "Hello"), say(S, "Be brief."), say(A, "Hi")],
    "two_systems": [say(S, "One."), say(S, "Two."), say(U, "Hello")],
    "only_system": [say(S, "Be brief.")],
    "unknown_role": [say(U, "Hello"), say("critic", "Bad"), say(A, "So what")],
    "developer": [say("developer", "Use **bold**."), say(U, "Hello"), say(A, "Hi")],
    "empty": [say(U, ""), say(A, ""), say(U, " \n ")],
    "no_content": [say(U, "Hello"), {"role": A}],
    "none_content": [say(U, "Hello"), say(A, None, tool_calls=[CALL])],
    "unicode": [say(U, "日本語 \U0001F600 é ß ﬁ\u00a0x\u2028"), say(A, "\u3000はい\u3000 ǆ İ Σ")],
    "code": [say(U, "Write `{{ x }}` and {% if %} or {# no #}: f'{a}' \\n \t<b>&amp;</b>"), say(A, "```\n{\"a\": {}}\n```\n\n")],
    "spaces": [say(S, "  a  \n"), say(U, "\n\n Hello \r\n there \n"), say(A, "  yes  \n")],
    "special": [say(U, "<|im_end|><|eot_id|></s><eos>[INST] x [/INST]"), say(A, "<think>\nnot so\n</think>\n\nok")],
    "thinks": [say(U, "2+2?"), say(A, "<think>\nTwo and two\n</think>\n\n4"), say(U, "Sure?"), say(A, "<think></think>Yes")],
    "reasons": [say(U, "2+2?"), say(A, "4", reasoning_content="Two and two."), say(U, "And 3?"), say(A, "5", thinking="Up by one.")],
    "tool_use": TOOL_USE,
    "tool_use_system": [say(S, "Use tools."), *TOOL_USE, say(U, "Thanks"), say(A, "Welcome")],
    "two_calls": [say(U, "Both"), say(A, "Two calls.", tool_calls=[CALL, {"type": "function", "id": "call00002", "function": {
        "name": "stop", "arguments": {}}}]), say("tool", "21", tool_call_id="call00001", name="get_weather"),
        say("tool", "done", tool_call_id="call00002", name="stop")],
    "text_arguments": [say(U, "Go"), say(A, "", tool_calls=[{"type": "function", "id": "x", "function": {
        "name": "stop", "arguments": "{\"a\": [1, 2]}"}}]), say("tool", [{"type": "text", "text": "done"}], name="stop")],
    "bare_call": [say(U, "Go"), say(A, "", tool_calls=[{"name": "stop", "arguments": {"x": 1.0, "y": 10 ** 17, "z": 1e22}}]), say("tool", "done")],
    "thinking_call": [say(U, "Go"), say(A, "Now", reasoning_content="I need it.", tool_calls=[CALL]), say("tool", "ok", name="get_weather")],
    "parts": [say(U, PARTS), say(A, [{"type": "text", "text": "A cat."}])],
    "parts_system": [say(S, [{"type": "text", "text": "Look."}]), say(U, [{"type": "video"}, {"type": "text", "text": "Hm?"}]), say(A, "No")],
    "numbers": [say(U, 12), say(A, 1.5)],
    "lists": [say(U, ["a", "it's", 'both \'"']), say(A, {"a": None, "b": [True, 1e16, 0.1]})],
    "ipython": [say(U, "Go"), say("ipython", {"output": "x"}), say(A, "ok", prefix=True)],
}
OPTIONS = [
    {}, {"add_generation_prompt": True}, {"tools": TOOLS},
    {"add_generation_prompt": True, "tools": TOOLS, "variables": {"enable_thinking": False, "thinking": True, "builtin_tools": ["browser", "python"],
                                                                  "reasoning_effort": "high", "add_vision_id": True, "date_string": "1 May 2026"}}]


def make_tokenizer(folder):
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<s>", "</s>", "<pad>"]
    vocab = {token: number for number, token in enumerate(special + alphabet)}
    merges = [("h", "e"), ("Ġ", "t"), ("i", "n"), ("l", "l")]
    for left, right in merges:
        vocab[left + right] = len(vocab)
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    made = transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", pad_token="<pad>")
    made.save_pretrained(folder)
    return transformers.PreTrainedTokenizerFast.from_pretrained(folder)


class FixedTime(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return datetime.datetime.fromtimestamp(NOW, tz)


def case(tokenizer, name, source, messages, options, continued=False):
    out = {"template": name, "options": options, "messages": messages, "mask": None}
    arguments = {key: value for key, value in options.items() if key != "variables"} | options.get("variables", {})
    try:
        out["text"] = tokenizer.apply_chat_template(messages, chat_template=source, tokenize=False, **arguments)
    except Exception as error:  # whatever it refuses
        out["text"], out["why"] = None, f"{type(error).__name__}: {error}"[:300]
        return out
    if "continue_final_message" not in options and ("{% generation" in source or "{%- generation" in source):
        made = tokenizer.apply_chat_template(messages, chat_template=source, return_assistant_tokens_mask=True, **arguments)
        out["mask"] = "".join(map(str, made["assistant_masks"]))
    return out


def main():
    transformers.logging.set_verbosity_error()
    logging.disable()
    chat_template_utils.datetime = FixedTime
    folder = pathlib.Path(sys.argv[1])
    tokenizer = make_tokenizer(folder / "tokenizer")
    sources = {path.stem: path.read_text(encoding="utf-8") for path in sorted(pathlib.Path(sys.argv[2]).glob("*.jinja"))}
    cases = []
    for number, (name, source) in enumerate(sources.items()):
        for place, messages in enumerate(TALKS.values()):
            cases.append(case(tokenizer, name, source, messages, OPTIONS[(number + place) % len(OPTIONS)]))
        for options in OPTIONS:
            cases.append(case(tokenizer, name, source, TALKS["tool_use_system"], options))
        for field, talk in (("content", "answer"), ("content", "spaces"), ("content", "parts"), ("reasoning_content", "thinking_call")):
            cases.append(case(tokenizer, name, source, TALKS[talk], {"continue_final_message": field}))
    (folder / "cases.json").write_text(json.dumps({"sources": sources, "cases": cases}))


if __name__ == "__main__":
    main()
