"""Hugging Face's Trainer with its checkpoints in an engine."""

import sys

import torch
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainingArguments

import tierflow
from tierflow.transformers import TierflowCallback

config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
tokens = torch.arange(16)
data = [{"input_ids": tokens, "labels": tokens} for _ in range(32)]
arguments = TrainingArguments(
    sys.argv[1], max_steps=6, use_cpu=True, save_strategy="no", report_to=[], disable_tqdm=True
)
with tierflow.Engine(device="host", host_cache="64MiB", external=sys.argv[1], retention=2) as engine:
    callback = TierflowCallback(engine, every=2)
    trainer = Trainer(BertForMaskedLM(config), arguments, train_dataset=data, callbacks=[callback])
    trainer.train(resume_from_checkpoint=callback.checkpoint())
    print(engine.versions())
