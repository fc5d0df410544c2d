"""Folders of sentence-transformers with one odd setting each, and its vectors of a few sentences.

    python odd_sentences.py MODEL FOLDER     writes FOLDER/NAME/..., FOLDER/NAME/case.json and FOLDER/NAME/vectors.safetensors

case.json: {"refused": the key that levin's message names, or ""}.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer

TEXTS = ["Draw a picture.", "keep the books of a small firm", "Привет мир", "a b c d e f g h i j k l m n o p q r s t u v w x y z"]
PROMPT = {"prompts": {"query": "Represent this sentence: "}, "default_prompt_name": "query"}
POOLING = {"word_embedding_dimension": 384}


def cases():
    """(name, {file: settings}, key that levin refuses)"""
    main, transformer, pooling = "config_sentence_transformers.json", "sentence_bert_config.json", "1_Pooling/config.json"
    yield "prompt", {main: PROMPT}, ""
    yield "prompts_without_a_default", {main: {"prompts": PROMPT["prompts"], "default_prompt_name": None}}, ""
    yield "cut", {main: {"truncate_dim": 100, "similarity_fn_name": "dot"}}, ""
    yield "two_poolings", {pooling: {"embedding_dimension": 384, "pooling_mode": ["cls", "mean"]}}, ""
    yield "short", {transformer: {"max_seq_length": 6}}, ""
    yield "name_of_before", {transformer: None, "sentence_roberta_config.json": {"max_seq_length": 6, "do_lower_case": False}}, ""
    yield "pooling_without_prompt", {main: PROMPT, pooling: POOLING | {"pooling_mode_mean_tokens": True, "include_prompt": False}}, "include_prompt"
    yield "no_prompt_to_leave_out", {pooling: POOLING | {"pooling_mode_mean_tokens": True, "include_prompt": False}}, ""
    yield "lower_case", {transformer: {"max_seq_length": 256, "do_lower_case": True}}, "do_lower_case"
    yield "other_task", {transformer: {"transformer_task": "fill-mask"}}, "transformer_task"
    yield "other_output", {"2_Normalize/config.json": {"module_input_name": "token_embeddings"}}, "module_input_name"
    yield "other_prompt", {main: PROMPT | {"default_prompt_name": "passage"}}, "default_prompt_name"


def write(source, folder, files):
    for path in source.rglob("*"):
        name = path.relative_to(source)
        if path.is_dir():
            (folder / name).mkdir(parents=True, exist_ok=True)
        elif str(name) not in files:
            (folder / name).symlink_to(path.resolve())
    for name, settings in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        if settings is not None:
            (folder / name).write_text(json.dumps(settings))


def main():
    torch.set_num_threads(1)
    source, root = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2])
    for name, files, refused in cases():
        folder = root / name
        folder.mkdir()
        write(source, folder, files)
        (folder / "case.json").write_text(json.dumps({"refused": refused}))
        if not refused:
            vectors = SentenceTransformer(str(folder), device="cpu").encode(TEXTS, convert_to_tensor=True, show_progress_bar=False)
            save_file({"vectors": vectors.contiguous()}, folder / "vectors.safetensors")
    (root / "sentences.txt").write_text("".join(text + "\n" for text in TEXTS))


if __name__ == "__main__":
    main()
