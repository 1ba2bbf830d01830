"""Writes checkpoints of a Llama of a billion weights, each drawn by chance: what one says is its own.

`checkpoints.py FOLDER NAME…`; runs in the environment of vLLM, which has PyTorch and transformers.
"""

import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from tokenizers.decoders import ByteLevel
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

TEMPLATE = "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"

folder, *names = sys.argv[1:]
vocabulary = {word: number for number, word in enumerate(["<s>", "</s>", *sorted(pre_tokenizers.ByteLevel.alphabet())])}
of_bytes = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
of_bytes.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
of_bytes.decoder = ByteLevel()
tokenizer = PreTrainedTokenizerFast(tokenizer_object=of_bytes, bos_token="<s>", eos_token="</s>")
tokenizer.chat_template = TEMPLATE
config = LlamaConfig(
    vocab_size=len(vocabulary),
    hidden_size=2048,
    intermediate_size=8192,
    num_hidden_layers=16,
    num_attention_heads=16,
    num_key_value_heads=8,
    max_position_embeddings=8192,
    bos_token_id=0,
    eos_token_id=1,
)
for seed, name in enumerate(names):
    torch.manual_seed(seed)
    with torch.device("cuda" if torch.cuda.is_available() else "cpu"):
        model = LlamaForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(Path(folder) / name)
    tokenizer.save_pretrained(Path(folder) / name)
    del model
