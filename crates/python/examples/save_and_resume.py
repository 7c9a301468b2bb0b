"""A training that `torch.distributed.checkpoint` saves over an engine beside its work, and that continues where it was saved.

python save_and_resume.py --directory /tmp/training
python save_and_resume.py --directory /tmp/training        # continues
"""

import argparse
import warnings
from pathlib import Path

import torch
from torch import nn
from torch.distributed import checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

import tierflow

warnings.filterwarnings("ignore", message="torch.distributed is")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--directory", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--every", type=int, default=10)
    options = parser.parse_args()
    options.directory.mkdir(exist_ok=True)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 512), nn.Tanh(), nn.Linear(512, 64))
    optimizer = torch.optim.AdamW(model.parameters())
    with tierflow.Engine(host_cache="256MiB", external=options.directory, retention=3) as engine:
        writer = tierflow.torch.StorageWriter(engine)
        first = 0
        if engine.latest() is not None:
            weights, moments = get_state_dict(model, optimizer)
            state = {"model": weights, "optimizer": moments, "step": 0}
            dcp.load(state, storage_reader=tierflow.torch.StorageReader(engine))
            set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
            first = state["step"] + 1
            print(f"goes on at step {first}, from version {engine.latest()}")
        saved = None
        for step in range(first, first + options.steps):
            torch.manual_seed(step)
            batch = torch.randn(32, 64)
            loss = (model(batch) - batch.sin()).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            if step % options.every == options.every - 1:
                if saved is not None:
                    saved.upload_completion.result()
                weights, moments = get_state_dict(model, optimizer)
                # The call returns at once. On a GPU the copies run beside the next step, whose update comes after them.
                saved = dcp.async_save({"model": weights, "optimizer": moments, "step": step}, storage_writer=writer)
                saved.staging_completion.result()
        if saved is not None:
            saved.upload_completion.result()
        writer.close()
        print(f"step {step}: {loss.item():.4f}; version {writer.version} is saved")
        # The end of the block waits until the last save is durable.


if __name__ == "__main__":
    main()
